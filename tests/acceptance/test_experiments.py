"""Experiments that coordlab ships behave as real clusters did in measurements.

Each experiment is played once, in virtual time. The tests compute times from the rows of its trace,
the list of all recorded events. Their code shares nothing with the analysis or with the checks of a
run, so an error in the analysis or in a check shows here. Many bounds come from measurements of a
real cluster: (MEASURED_FAILOVER move) is the measurement `move` in docs/kafka/MEASURED_FAILOVER.md,
and (MEASURED_FAILOVER 4) is point 4 of that page.
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
"""The partition of the offsets topic that stores the group's members and commits."""
COORDINATOR = "broker-2"
"""The group's coordinator before the fault."""
SEED = 3
"""The seed of every run. Another seed would do, too."""
SECOND_US = 1_000_000
# The experiments that are played. Each has the group `orders-readers`.
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
    """Return how an experiment's fault moved the coordinator of the group, and how long it took."""
    run = played(name)
    return failover_of(run.rows, run.experiment, GROUP, fault=fault)


def rows_of(run: VirtualRun, *kinds: TraceKind) -> list[TraceRow]:
    """Return the rows of these kinds from the first fault on."""
    fault_us = next(row.time_us for row in run.rows if row.kind == TraceKind.FAULT_INJECTED)
    return [row for row in run.rows if row.time_us >= fault_us and row.kind in kinds]


def fault_times(run: VirtualRun) -> tuple[int, int]:
    """Return the times of the first fault's injection and healing, on the run's clock."""
    (entry, *_) = run.results.faults
    assert entry.fired_at_us is not None
    assert entry.healed_at_us is not None
    return entry.fired_at_us, entry.healed_at_us


def checks_that_apply(experiment: Experiment) -> set[str]:
    """Return the names of the checks that apply to `experiment`."""
    context = context_of(experiment)
    return {name for name, checker in CHECKERS.items() if checker.concerns(context)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_passes_and_no_check_is_undecided(name: str) -> None:
    """No fault may break a promise of Kafka's: the experiments change none of Kafka's rules."""
    run = played(name)
    assert run.results.reasons == ()
    assert run.results.verdict is Verdict.PASS
    outcomes = {report.outcome for report in run.results.checks}
    assert outcomes <= {CheckOutcome.PASS, CheckOutcome.NOTHING_SEEN}
    assert {check.check for check in run.results.checks} == checks_that_apply(run.experiment)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_acknowledged_commit_is_lost(name: str) -> None:
    """The offset that is read at the end is not older than any offset that was acknowledged."""
    run = played(name)
    assert lost_commits(run.rows, run.experiment, GROUP) == []


def test_static_members_survive_a_crash_as_dynamic_ones_do() -> None:
    """The coordinator crashes, and no rebalance is needed.

    The new coordinator loads both sorts of members from the log. A static member has a configured
    `group.instance.id`; each of the 12 members has its own.
    """
    static = failover("coordinator_crash_static")
    assert static.rebalances == 0
    assert len(static.resumes_us) == 12
    run = played("coordinator_crash_static")
    added = [row for row in run.rows if row.kind == TraceKind.MEMBER_ADDED]
    assert len({detail_of(row)["instance"] for row in added}) == 12


def test_graceful_move_costs_less_than_two_seconds_and_no_rebalance() -> None:
    """The coordinator moves to another broker, and commits pause for less than 2 s.

    In a real cluster such a move had no rebalance, and commits paused for 0.5 s (median) to 1.4 s
    (MEASURED_FAILOVER move: p50 498, p90 1279, max 1396 ms).
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
        assert entry.fired_at_us is not None
        stopped_us = entry.fired_at_us
        elections = [
            row
            for row in rows_of(run, TraceKind.LEADER_ELECTED)
            if stopped_us <= row.time_us < stopped_us + 5 * SECOND_US
        ]
        assert elections, entry.fault_id
        # Each election finds a leader, which is another broker than the one that stops.
        assert all(row.peer not in {"", entry.node} for row in elections)
        elections_of_partition = Counter(row.partition for row in elections)
        assert set(elections_of_partition.values()) == {1}

    # broker-2, the group's coordinator, is the last broker that is restarted.
    restart_of_coordinator = failover("rolling_restart", fault=2)
    assert restart_of_coordinator.decided_us is not None
    assert restart_of_coordinator.decided_us < SECOND_US
    assert len(restart_of_coordinator.notices_us) == 12
    # A move is shorter than the interval between commits, so some members may have no gap.
    assert all(gap_us < 2 * SECOND_US for gap_us in restart_of_coordinator.commit_gaps_us)


def test_crashed_member_is_evicted_by_its_session_in_one_rebalance() -> None:
    """A dead member is removed when its session ends, 45 s after its last heartbeat.

    That heartbeat was at most 3 s before the crash, so the removal comes 42 to 45 s after the crash
    (BEHAVIOUR 3.6).
    """
    run = played("member_crash")
    crashed_us, healed_us = fault_times(run)
    # Only rows before the restart of the member count.
    (rebalance,) = (
        row for row in rows_of(run, TraceKind.REBALANCE_STARTED) if row.time_us < healed_us
    )
    (removal,) = (row for row in rows_of(run, TraceKind.MEMBER_REMOVED) if row.time_us < healed_us)
    assert removal.cause == "session expiry"
    assert removal.member == rebalance.member
    assert 42 * SECOND_US <= removal.time_us - crashed_us <= 45 * SECOND_US
    generation = next(
        row for row in rows_of(run, TraceKind.GENERATION_STARTED) if row.time_us < healed_us
    )
    # The other 11 members learn of the rebalance with their next heartbeat, at most 3 s later. The
    # bound allows another second for their joins.
    assert generation.time_us - removal.time_us <= 4 * SECOND_US
    assert len(detail_of(generation)["members"]) == 11


def test_members_wait_for_a_paused_coordinator_although_another_is_ready() -> None:
    """Another broker is the coordinator after 8 s, but members wait 20 s for the paused broker.

    A pause closes no connection, so no member looks for another coordinator before the pause ends.
    In a real cluster the next coordinator was ready after 7.7 s, and members had no commit for 20.1
    to 20.7 s (MEASURED_FAILOVER pause).
    """
    run = played("pause_coordinator")
    pause = failover("pause_coordinator")
    paused_us, resumed_us = fault_times(run)
    assert pause.active_us is not None
    # The session of a broker, 9 s, begins with its last heartbeat, up to 2 s before the pause. When
    # it ends, another half second is enough for the next coordinator.
    assert 7 * SECOND_US <= pause.active_us <= 9.5 * SECOND_US
    assert len(pause.notices_us) == 12
    assert all(20 * SECOND_US <= notice <= 21 * SECOND_US for notice in pause.notices_us)
    assert pause.rebalances == 0

    # The resumed broker itself tells each member that it is no longer the coordinator.
    refusals = [
        row
        for row in run.rows
        if row.node == COORDINATOR
        and row.kind == TraceKind.RESPONSE_SENT
        and row.time_us >= resumed_us
        and row.peer
        and row.peer.startswith("consumer-")
        and row.error == "NOT_COORDINATOR"
    ]
    assert len({row.peer for row in refusals}) == 12
    # During the pause, this broker did nothing.
    assert not [
        row for row in run.rows if row.node == COORDINATOR and paused_us < row.time_us < resumed_us
    ]


def test_resumed_coordinator_serves_until_it_learns_of_its_successor() -> None:
    """A resumed coordinator answers from its old state until it learns that it is a follower.

    From then on it answers NOT_COORDINATOR (MEASURED_FAILOVER 3).
    """
    run = played("pause_coordinator")
    _, resumed_us = fault_times(run)
    rows = [row for row in run.rows if row.node == COORDINATOR and row.time_us >= resumed_us]
    became_follower_us = next(
        row.time_us
        for row in rows
        if row.kind == TraceKind.BECAME_FOLLOWER and row.partition == OFFSETS
    )
    refusals = [
        row
        for row in rows
        if row.kind == TraceKind.RESPONSE_SENT and row.error == "NOT_COORDINATOR"
    ]
    assert refusals
    assert all(row.time_us >= became_follower_us for row in refusals)


def test_machine_without_power_is_noticed_when_requests_time_out() -> None:
    """After a power loss no kernel closes the sockets, so members wait request.timeout.ms, 30 s.

    When they notice the loss, the next coordinator has already been ready for 20 s.
    """
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

    A commit needs the other replicas in the ISR, which the cut coordinator cannot reach. Only the
    controller could take them out of the ISR, and it is unreachable, too. So the high watermark
    does not advance. Heartbeats need no other broker, so they succeed (MEASURED_FAILOVER 4).
    """
    run = played("split_network")
    cut_us, healed_us = fault_times(run)
    split = failover("split_network")
    assert len(split.notices_us) == 12
    assert all(5 * SECOND_US <= notice <= 5.3 * SECOND_US for notice in split.notices_us)

    # The cut coordinator leads in leader epoch 0, in which the ISR never changes.
    changes_of_isr = [
        row
        for row in rows_of(run, TraceKind.ISR_CHANGED)
        if row.partition == OFFSETS and row.leader_epoch == 0 and row.time_us < healed_us
    ]
    assert changes_of_isr == []

    failed_appends = [
        row
        for row in rows_of(run, TraceKind.APPEND_COMPLETED)
        if row.node == COORDINATOR and row.partition == OFFSETS and row.error == "REQUEST_TIMED_OUT"
    ]
    started_us = {
        row.correlation_id: row.time_us
        for row in run.rows
        if row.node == COORDINATOR and row.kind == TraceKind.APPEND_STARTED
    }
    assert failed_appends
    for row in failed_appends:
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
    members_that_left = 0
    for index in range(12):
        rows = [
            row
            for row in run.rows
            if row.node == f"consumer-{GROUP}-{index}" and cut_us <= row.time_us < healed_us
        ]
        timeouts = [
            row
            for row in rows
            if row.kind == TraceKind.COORDINATOR_UNKNOWN and row.cause == "REQUEST_TIMED_OUT"
        ]
        if len(timeouts) == 2:
            # After the second timeout this member went to the new coordinator.
            members_that_left += 1
            continue
        # This member stayed, and had a third timeout. Before that, the cut coordinator named
        # itself: `peer` is the coordinator that was named, `cause` the broker that named it.
        assert len(timeouts) > 2
        _, second_timeout, third_timeout, *_ = timeouts
        *_, last_answer = [
            row
            for row in rows
            if row.kind == TraceKind.COORDINATOR_FOUND
            and second_timeout.time_us <= row.time_us < third_timeout.time_us
        ]
        assert (last_answer.peer, last_answer.cause) == (COORDINATOR, COORDINATOR)
    assert members_that_left > 0
    # Members that left after two timeouts of 5 s have a gap of a little more than 10 s.
    gaps_us = failover("split_network").commit_gaps_us
    assert len([gap_us for gap_us in gaps_us if gap_us < 11 * SECOND_US]) == members_that_left


def test_no_commit_of_an_older_epoch_is_acknowledged_after_a_newer_one() -> None:
    """In a split brain, only one of the two coordinators can store commits.

    A commit is acknowledged only when the high watermark of its partition has passed it. At the old
    coordinator the high watermark does not advance. The check `fencing` of a run judges the same,
    but this test reads the appends itself.
    """
    for name in ("split_network", "split_brain_ownership", "split_brain_generations"):
        run = played(name)
        newest_epoch = -1
        for row in rows_of(run, TraceKind.APPEND_COMPLETED):
            if row.partition == OFFSETS and row.error == "NONE" and row.leader_epoch is not None:
                assert row.leader_epoch >= newest_epoch, name
                newest_epoch = row.leader_epoch
        assert newest_epoch >= 0, name


def test_two_sets_of_owners_process_the_same_partitions_until_the_cut_heals() -> None:
    """All 12 partitions have two owners. In four partitions the old owners get no new records.

    The cut broker leads these four (2, 5, 8, 11). The old owners keep fetching from that broker,
    whose high watermark does not advance (MEASURED_FAILOVER 7). In the real cluster, partitions had
    two owners from 52.1 to 83 s (MEASURED_FAILOVER two-owners).
    """
    run = played("split_brain_ownership")
    cut_us, healed_us = fault_times(run)
    old_owners = {f"consumer-{GROUP}-{index}" for index in range(6)}
    new_owners = {f"consumer-{GROUP}-{index}" for index in (6, 7)}
    # The new coordinator is active 9 s after the cut. At this coordinator the sessions of the old
    # owners end 45 s later. Then the new owners get the partitions.
    two_owners_from_us = cut_us + (9 + 45) * SECOND_US
    consumed = [
        row
        for row in rows_of(run, TraceKind.RECORDS_CONSUMED)
        if two_owners_from_us < row.time_us < healed_us
    ]
    all_partitions = {f"orders-{index}" for index in range(12)}
    led_by_the_cut_broker = {f"orders-{index}" for index in (2, 5, 8, 11)}
    assert {row.partition for row in consumed if row.node in new_owners} == all_partitions
    assert {row.partition for row in consumed if row.node in old_owners} == (
        all_partitions - led_by_the_cut_broker
    )

    # A milestone is the time of the first event of its kind. "Epoch +1" is the leader epoch of the
    # new coordinator.
    milestones = milestones_of(run.rows, run.experiment, GROUP)
    new_generation_us = milestones["first generation in epoch +1"]
    active_us = milestones["epoch +1 active"]
    # The sessions of the old owners begin again when the new coordinator has loaded the group.
    assert new_generation_us - active_us == pytest.approx(45 * SECOND_US, abs=0.2 * SECOND_US)
    lost_us = milestones["members lose their partitions"]
    # The cut lasts 80 s. The old owners lose their partitions with a heartbeat, at most 3 s later.
    # The bound allows another 0.6 s for the healing.
    assert 80 * SECOND_US < lost_us <= 83.6 * SECOND_US

    # At the end the group has the 6 old owners and the 2 new ones.
    last_generation = rows_of(run, TraceKind.GENERATION_STARTED)[-1]
    assert last_generation.generation == 3
    assert len(detail_of(last_generation)["members"]) == 6 + 2


def test_ownership_overlap_is_measured_and_within_its_bound() -> None:
    """Kafka permits two owners in a split brain, so the check `ownership` passes.

    The check counts the 12 partitions that had two owners (overlaps).
    """
    reports = {report.check: report for report in played("split_brain_ownership").results.checks}
    assert reports["ownership"].outcome is CheckOutcome.PASS
    assert reports["ownership"].seen["overlaps"] == 12


def test_split_brain_without_the_high_watermark_gate_is_a_violation() -> None:
    """Without this guard of Kafka's, each coordinator acknowledges commits that only it has.

    This breaks two of Kafka's promises. The run has a finding for each of them. A finding has
    evidence, the rows of the trace that prove it, in the order of time. It also has a story, which
    tells each of these rows as a sentence.
    """
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
        times = [row.time_us for row in finding.evidence]
        assert len(times) >= 2
        assert times == sorted(times)
        assert len(finding.story) == len(finding.evidence)


def test_old_coordinator_rebalances_every_five_seconds_without_success() -> None:
    """The old coordinator cannot store an assignment, so it begins another rebalance every 5 s.

    Members 0 to 5 are on the side of the old coordinator, and get no partitions before the cut is
    healed. In a real cluster, such a coordinator began the generations 2 to 14, one every 5.0 s
    (MEASURED_FAILOVER two-lineages).
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
    intervals_us = [next_us - time_us for time_us, next_us in itertools.pairwise(times)]
    assert median(intervals_us) == pytest.approx(5 * SECOND_US, rel=0.05)
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
    truncations = [
        row
        for row in rows_of(run, TraceKind.LOG_TRUNCATED)
        if row.node == COORDINATOR and row.partition == OFFSETS and row.time_us >= healed_us
    ]
    assert len(truncations) == 1
    # At the end all 8 members are in one generation of the new coordinator.
    last_generation = rows_of(run, TraceKind.GENERATION_STARTED)[-1]
    assert last_generation.node != COORDINATOR
    assert len(detail_of(last_generation)["members"]) == 8
