"""The experiments in virtual time (the run's simulated clock) against their promised bounds.

All values are computed from the rows of the trace, by code that shares nothing with the pipeline's
tables or the checkers' models. Where a bound comes from a measurement of a real cluster, brackets
name it: the name of docs/kafka/MEASURED_FAILOVER.md, then the measurement or the numbered point.

- Generation: counts a group's rebalances, in which members join again and get partitions.
- Leader epoch: counts a partition's leaders.
- ISR: the in-sync replicas of a partition. Its high watermark is the offset below which all of them
  have the records; only such records are acknowledged.
- The controller fences a broker (excludes it from the cluster) when its session ends.
"""

import itertools
from collections import Counter
from functools import cache
from statistics import median

import pytest

from chaos.checkers.context import detail_of
from chaos.checkers.registry import CHECKERS, context_of
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckOutcome, Verdict
from tests.support.worlds.acceptance import (
    VirtualRun,
    lost_commits,
    play_virtual,
)
from tests.support.worlds.failover import Failover, failover_of
from tests.support.worlds.story import milestones_of

pytestmark = pytest.mark.slow

GROUP = "orders-readers"
OFFSETS = "__consumer_offsets-2"
"""The group's offsets partition."""
COORDINATOR = "broker-2"
"""The group's coordinator before the fault."""
SEED = 3
"""The seed of every run: the number from which its random choices come."""
SECOND_US = 1_000_000
EXPERIMENTS = (
    "coordinator_crash_static",
    "graceful_move",
    "rolling_restart",
    "member_crash",
    "pause_coordinator",
    "split_network",
    "split_brain_ownership",
    "split_brain_generations",
)


@cache
def played(name: str, *overrides: str) -> VirtualRun:
    """Play an experiment once for all the tests that read it."""
    return play_virtual(load_experiment(name, overrides).experiment, seed=SEED)


def failover(name: str, fault: int = 0) -> Failover:
    """Return the effect of an experiment's fault on the group."""
    run = played(name)
    return failover_of(run.rows, run.experiment, GROUP, fault=fault)


def rows_of(run: VirtualRun, *kinds: TraceKind) -> list[TraceRow]:
    """Return the rows of these kinds from the first fault on."""
    began_us = next(r.time_us for r in run.rows if r.kind == TraceKind.FAULT_INJECTED)
    return [row for row in run.rows if row.time_us >= began_us and row.kind in kinds]


def fault_times(run: VirtualRun) -> tuple[int, int]:
    """Return the times of the first fault's injection and healing, on the run's clock."""
    (entry, *_) = run.results.faults
    assert entry.fired_at_us is not None
    assert entry.healed_at_us is not None
    return entry.fired_at_us, entry.healed_at_us


def concerned(experiment: Experiment) -> set[str]:
    """Return the checks that apply to `experiment`."""
    context = context_of(experiment)
    return {name for name, checker in CHECKERS.items() if checker.concerns(context)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_passes_and_no_check_is_undecided(name: str) -> None:
    """With every guard (safety rule) on, no fault may break a promise of Kafka's."""
    run = played(name)
    assert run.results.reasons == ()
    assert run.results.verdict is Verdict.PASS
    outcomes = {report.outcome for report in run.results.checks}
    assert outcomes <= {CheckOutcome.PASS, CheckOutcome.NOTHING_SEEN}
    assert {check.check for check in run.results.checks} == concerned(run.experiment)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_acknowledged_commit_is_lost(name: str) -> None:
    """The offset that is read at the end is not older than any acknowledged one."""
    run = played(name)
    assert lost_commits(run.rows, run.experiment, GROUP) == []


def test_static_members_survive_a_crash_as_dynamic_ones_do() -> None:
    """The new coordinator loads both sorts of members from the log, so no rebalance is needed.

    A static member has a configured `group.instance.id`, which keeps its place through a restart.
    """
    static = failover("coordinator_crash_static")
    assert static.rebalances == 0
    assert len(static.resumes_us) == 12
    added = [r for r in played("coordinator_crash_static").rows if r.kind == TraceKind.MEMBER_ADDED]
    # There are 12 members, each with an instance id of its own.
    assert len({detail_of(row)["instance"] for row in added}) == 12


def test_graceful_move_costs_less_than_two_seconds_and_no_rebalance() -> None:
    """A real move of the coordinator had no rebalance; commits paused for 0.5 s (median) to 1.4 s.

    (MEASURED_FAILOVER move: p50 498, p90 1279, max 1396 ms)
    """
    move = failover("graceful_move")
    assert move.rebalances == 0
    assert move.unloaded_after_active_us is not None
    # The old coordinator may unload before or after the new one is active.
    assert -2 * SECOND_US < move.unloaded_after_active_us < 2 * SECOND_US
    assert len(move.commit_gaps_us) == 12
    assert move.commit_gaps_us[-1] < 2 * SECOND_US
    assert set(move.commit_errors) <= {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"}


def test_rolling_restart_moves_each_brokers_leaderships_once_without_a_rebalance() -> None:
    """A broker hands its leaderships over before it stops, so no group waits for a timeout."""
    run = played("rolling_restart")
    assert not rows_of(run, TraceKind.REBALANCE_STARTED, TraceKind.MEMBER_REMOVED)
    entries = run.results.faults
    assert len(entries) == 3
    for entry in entries:
        moved = [
            row
            for row in rows_of(run, TraceKind.LEADER_ELECTED)
            if entry.fired_at_us is not None
            and entry.fired_at_us <= row.time_us < entry.fired_at_us + 5 * SECOND_US
        ]
        assert moved, entry.fault_id
        assert all(row.peer not in {"", entry.node} for row in moved)
        # Each partition was elected a new leader once.
        counts = Counter(row.partition for row in moved)
        assert set(counts.values()) == {1}

    last = failover("rolling_restart", fault=2)
    assert last.decided_us is not None
    assert last.decided_us < SECOND_US
    # A move is shorter than the interval between commits, so a member may have no commit in it.
    assert len(last.notices_us) == 12
    assert all(gap_us < 2 * SECOND_US for gap_us in last.commit_gaps_us)


def test_crashed_member_is_evicted_by_its_session_in_one_rebalance() -> None:
    """A dead member is removed when its session ends, 45 s after its last heartbeat.

    That heartbeat was at most 3 s before the crash, so the removal comes 42 to 45 s after the crash
    (BEHAVIOUR 3.6).
    """
    run = played("member_crash")
    crashed_us, healed_us = fault_times(run)
    during = [r for r in rows_of(run, TraceKind.REBALANCE_STARTED) if r.time_us < healed_us]
    assert len(during) == 1
    removed = [r for r in rows_of(run, TraceKind.MEMBER_REMOVED) if r.time_us < healed_us]
    assert [row.cause for row in removed] == ["session expiry"]
    assert removed[0].member == during[0].member
    assert 42 * SECOND_US <= removed[0].time_us - crashed_us <= 45 * SECOND_US
    generation = next(
        r for r in rows_of(run, TraceKind.GENERATION_STARTED) if r.time_us < healed_us
    )
    # The other members learn of the rebalance with their next heartbeat, at most 3 s later. The
    # bound allows another second for their joins.
    assert generation.time_us - removed[0].time_us <= 4 * SECOND_US
    assert len(detail_of(generation)["members"]) == 11


def test_members_wait_for_a_paused_coordinator_although_another_is_ready() -> None:
    """Another broker is the coordinator after 8 s, but members wait 20 s for the paused one.

    A pause closes no connection, so no member looks for another coordinator before the pause ends.
    (MEASURED_FAILOVER pause: ready after 7.7 s, no commit for 20.1 to 20.7 s)
    """
    run = played("pause_coordinator")
    pause = failover("pause_coordinator")
    paused_us, resumed_us = fault_times(run)
    assert pause.active_us is not None
    assert 7 * SECOND_US <= pause.active_us <= 9.5 * SECOND_US
    assert len(pause.notices_us) == 12
    assert all(20 * SECOND_US <= notice <= 21 * SECOND_US for notice in pause.notices_us)
    assert pause.rebalances == 0

    # Each member learns of it from the resumed broker itself. During the pause that broker wrote no
    # row.
    after = [
        row
        for row in run.rows
        if row.node == COORDINATOR
        and row.kind == TraceKind.RESPONSE_SENT
        and row.time_us >= resumed_us
        and row.peer
        and row.peer.startswith("consumer-")
        and row.error == "NOT_COORDINATOR"
    ]
    assert len({row.peer for row in after}) == 12
    assert not [
        row for row in run.rows if row.node == COORDINATOR and paused_us < row.time_us < resumed_us
    ]


def test_resumed_coordinator_serves_until_it_learns_of_its_successor() -> None:
    """A resumed coordinator answers from its old state until it learns that it is a follower.

    Only then does it answer NOT_COORDINATOR (MEASURED_FAILOVER 3).
    """
    run = played("pause_coordinator")
    _, resumed_us = fault_times(run)
    rows = [row for row in run.rows if row.node == COORDINATOR and row.time_us >= resumed_us]
    learnt = next(r for r in rows if r.kind == TraceKind.BECAME_FOLLOWER and r.partition == OFFSETS)
    refused = [
        r for r in rows if r.kind == TraceKind.RESPONSE_SENT and r.error == "NOT_COORDINATOR"
    ]
    assert refused
    assert all(row.time_us >= learnt.time_us for row in refused)


def test_machine_without_power_is_noticed_when_requests_time_out() -> None:
    """Without power no kernel closes the sockets: requests wait request.timeout.ms, 30 s."""
    run = played("coordinator_crash", "faults[0].fault=power_loss", "faults[0].duration=45s")
    assert run.results.verdict is Verdict.PASS
    loss = failover_of(run.rows, run.experiment, GROUP)
    assert loss.active_us is not None
    assert loss.active_us <= 9.5 * SECOND_US
    assert len(loss.notices_us) == 12
    assert all(30 * SECOND_US <= notice <= 30.3 * SECOND_US for notice in loss.notices_us)
    assert loss.rebalances == 0


def test_commits_at_a_cut_coordinator_time_out_after_five_seconds() -> None:
    """Each commit at the cut coordinator waits offsets.commit.timeout.ms, 5 s, and fails.

    Only the controller could take the unreachable replicas out of the ISR, and it is unreachable,
    too. So the high watermark does not advance. Heartbeats need no other broker, so they succeed
    (MEASURED_FAILOVER 4).
    """
    run = played("split_network")
    cut_us, healed_us = fault_times(run)
    split = failover("split_network")
    assert len(split.notices_us) == 12
    assert all(5 * SECOND_US <= notice <= 5.3 * SECOND_US for notice in split.notices_us)

    shrunk = [
        row
        for row in rows_of(run, TraceKind.ISR_CHANGED)
        # The cut coordinator leads in leader epoch 0.
        if row.partition == OFFSETS and row.leader_epoch == 0 and row.time_us < healed_us
    ]
    assert shrunk == []

    failed = [
        row
        for row in rows_of(run, TraceKind.APPEND_COMPLETED)
        if row.node == COORDINATOR and row.partition == OFFSETS and row.error == "REQUEST_TIMED_OUT"
    ]
    started_us = {
        row.correlation_id: row.time_us
        for row in run.rows
        if row.node == COORDINATOR and row.kind == TraceKind.APPEND_STARTED
    }
    assert failed
    for row in failed:
        waited_us = row.time_us - started_us[row.correlation_id]
        assert waited_us == pytest.approx(5 * SECOND_US, rel=0.01)

    heartbeats = [
        row
        for row in run.rows
        if row.node == COORDINATOR
        and row.kind == TraceKind.RESPONSE_SENT
        and row.api == "Heartbeat"
        # About 8 s after the cut the controller elects another coordinator.
        and cut_us + 8 * SECOND_US < row.time_us < healed_us
    ]
    assert heartbeats
    assert {row.error for row in heartbeats} == {"NONE"}


def test_members_leave_a_cut_coordinator_on_the_second_failure() -> None:
    """A member leaves the cut coordinator unless that broker itself answers its FindCoordinator.

    1. A commit times out, and the member asks some broker for the coordinator. All brokers still
       name the cut coordinator.
    2. A second commit times out, and the member asks again. The other brokers now name the new
       coordinator. The cut coordinator still names itself, and so keeps the members that ask it.
    """
    run = played("split_network")
    cut_us, healed_us = fault_times(run)
    left, stayed = [], []
    for index in range(12):
        rows = [
            row
            for row in run.rows
            if row.node == f"consumer-{GROUP}-{index}" and cut_us <= row.time_us < healed_us
        ]
        failures = [
            row
            for row in rows
            if row.kind == TraceKind.COORDINATOR_UNKNOWN and row.cause == "REQUEST_TIMED_OUT"
        ]
        if len(failures) == 2:
            left.append(index)
            continue
        assert len(failures) > 2
        answers = [
            (row.peer, row.cause)
            for row in rows
            if row.kind == TraceKind.COORDINATOR_FOUND
            and failures[1].time_us <= row.time_us < failures[2].time_us
        ]
        # A pair is (the coordinator that was named, the broker that named it).
        assert answers[-1] == (COORDINATOR, COORDINATOR)
        stayed.append(index)
    gaps = failover("split_network").commit_gaps_us
    assert left
    assert len(left) + len(stayed) == 12
    # Members that left after two timeouts of 5 s have a gap of a little more than 10 s.
    assert len([gap for gap in gaps if gap < 11 * SECOND_US]) == len(left)


def test_no_commit_of_an_older_epoch_is_acknowledged_after_a_newer_one() -> None:
    """The high watermark gate ensures this: a commit is acknowledged only below the high watermark.

    The test reads the appends in the trace and does not use the checker.
    """
    for name in ("split_network", "split_brain_ownership", "split_brain_generations"):
        run = played(name)
        newest = -1
        for row in rows_of(run, TraceKind.APPEND_COMPLETED):
            if row.partition == OFFSETS and row.error == "NONE" and row.leader_epoch is not None:
                assert row.leader_epoch >= newest, name
                newest = row.leader_epoch
        assert newest >= 0, name


def test_two_sets_of_owners_process_the_same_partitions_until_the_cut_heals() -> None:
    """All 12 partitions have two owners; in four of them the old owners get no new records.

    The cut broker leads these four (2, 5, 8, 11). The old owners keep fetching from that broker,
    whose high watermark does not advance (MEASURED_FAILOVER 7). In the real cluster, partitions had
    two owners from 52.1 to 83 s (MEASURED_FAILOVER two-owners).
    """
    run = played("split_brain_ownership")
    cut_us, healed_us = fault_times(run)
    old = {f"consumer-{GROUP}-{index}" for index in range(6)}
    new = {f"consumer-{GROUP}-{index}" for index in (6, 7)}
    # This time begins when the old members' sessions have ended at the new coordinator: 9 s until
    # it is active, and 45 s more.
    consumed = [
        row
        for row in rows_of(run, TraceKind.RECORDS_CONSUMED)
        if cut_us + 54 * SECOND_US < row.time_us < healed_us
    ]
    all_partitions = {f"orders-{index}" for index in range(12)}
    led_by_the_cut_broker = {f"orders-{index}" for index in (2, 5, 8, 11)}
    assert {row.partition for row in consumed if row.node in new} == all_partitions
    assert {row.partition for row in consumed if row.node in old} == (
        all_partitions - led_by_the_cut_broker
    )

    milestones = milestones_of(run.rows, run.experiment, GROUP)
    # Epoch +1 is the new coordinator's leader epoch, 1 above that of the old coordinator.
    new_generation_us = milestones["first generation in epoch +1"]
    active_us = milestones["epoch +1 active"]
    # The old members' sessions of 45 s begin again when the new coordinator has loaded the group.
    assert new_generation_us - active_us == pytest.approx(45 * SECOND_US, abs=0.2 * SECOND_US)
    lost_us = milestones["members lose their partitions"]
    # The cut lasts 80 s. The old owners lose their partitions with a heartbeat, at most 3 s later.
    # The bound allows another 0.6 s for the healing.
    assert 80 * SECOND_US < lost_us <= 83.6 * SECOND_US

    last = next(r for r in reversed(run.rows) if r.kind == TraceKind.GENERATION_STARTED)
    assert last.generation == 3
    assert len(detail_of(last)["members"]) == 6 + 2


def test_ownership_overlap_is_measured_and_within_its_bound() -> None:
    """Kafka permits two owners in a split brain, so the check passes; it counts the 12 overlaps."""
    reports = {report.check: report for report in played("split_brain_ownership").results.checks}
    assert reports["ownership"].outcome is CheckOutcome.PASS
    assert reports["ownership"].seen["overlaps"] == 12


def test_split_brain_without_the_high_watermark_gate_is_a_violation() -> None:
    """Without the gate, each side acknowledges commits alone, which breaks two promises."""
    run = played(
        "split_brain_ownership",
        "cluster.guards.high_watermark_gate=false",
        f"groups.{GROUP}.commit_interval_ms=200",
    )
    assert run.results.verdict is Verdict.VIOLATED
    reports = {report.check: report for report in run.results.checks}
    for check in ("fencing", "durable_commits"):
        assert reports[check].outcome is CheckOutcome.VIOLATED
        finding = reports[check].findings[0]
        assert len(finding.evidence) >= 2
        assert [row.time_us for row in finding.evidence] == sorted(
            row.time_us for row in finding.evidence
        )
        assert len(finding.story) == len(finding.evidence)


def test_old_coordinator_rebalances_every_five_seconds_without_success() -> None:
    """The old coordinator cannot store an assignment, so it begins another rebalance after 5 s.

    Hence no member that is cut off with it gets partitions before the healing. A real coordinator
    had generations 2 to 14, one every 5.0 s (MEASURED_FAILOVER two-lineages).
    """
    run = played("split_brain_generations")
    _, healed_us = fault_times(run)
    generations = [
        row
        for row in rows_of(run, TraceKind.GENERATION_STARTED)
        if row.node == COORDINATOR and row.time_us < healed_us
    ]
    assert len(generations) >= 12
    times = [row.time_us for row in generations]
    intervals = [end - start for start, end in itertools.pairwise(times)]
    assert median(intervals) == pytest.approx(5 * SECOND_US, rel=0.05)
    assert [row.generation for row in generations] == list(range(2, 2 + len(generations)))
    assert not [
        row
        for row in rows_of(run, TraceKind.PARTITIONS_ASSIGNED)
        if row.node in {f"consumer-{GROUP}-{index}" for index in range(6)}
        and row.time_us < healed_us
    ]


def test_generations_of_the_old_side_are_truncated_and_one_group_remains() -> None:
    """After the healing the old coordinator truncates the records that only its own log has.

    A real log was cut from offset 14 to 1, and one group remained (MEASURED_FAILOVER two-lineages).
    """
    run = played("split_brain_generations")
    _, healed_us = fault_times(run)
    truncated = [
        row
        for row in rows_of(run, TraceKind.LOG_TRUNCATED)
        if row.node == COORDINATOR and row.partition == OFFSETS and row.time_us >= healed_us
    ]
    assert len(truncated) == 1
    last = next(r for r in reversed(run.rows) if r.kind == TraceKind.GENERATION_STARTED)
    assert last.node != COORDINATOR
    assert len(detail_of(last)["members"]) == 8
