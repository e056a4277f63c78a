"""The liveness checker finds groups that never recover after the faults of a run.

In most traces here all faults are healed at 40 s. From then on the checker gives each group 60 s to
become live. A group is live if it is Stable, and a commit of each member has been acknowledged
since the healing. A group that does not become live is a finding, unless something excuses it. The
outcome INCONCLUSIVE means that the group had an excuse, or was not watched for 60 s.

Each test writes a trace by hand. The first number of a row is its time in seconds. "Planted bug" in
a docstring describes a bug that would leave such a trace. "Corpus" names an experiment of
tests/corpus whose run has such a trace.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.liveness import Liveness
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
"""The two consumers of the group `g`. Their member ids are these names with "-id" at the end."""
TRANSACTIONS = "__transaction_state-1"
"""In tests with transactions, the partition in which the members' transactions are stored."""
LIVENESS_BOUND_US = 60_000_000
"""The time in which a group must become live after the healing."""


def check(
    rows: Rows,
    *,
    commits: bool = True,
    late: tuple[str, ...] = (),
    transactions: tuple[str, ...] = (),
    same_assignors: bool = True,
) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    commits: False if the experiment says that the members never commit.
    late: consumers that the experiment starts during the run.
    transactions: the partitions in which the members' transactions are stored.
    same_assignors: True if all members have the same `partition.assignment.strategy`.
    """
    checker = Liveness(
        CheckContext(
            groups={
                "g": GroupExpectation(
                    consumers=(C0, C1),
                    offsets_partition=OFFSETS_0,
                    commits=commits,
                    late=late,
                    transaction_partitions=transactions,
                    same_assignors=same_assignors,
                )
            },
            # Two different values, so that a test can see which one the checker has used.
            min_insync_replicas=2,
            transaction_min_isr=3,
            liveness_timeout_us=LIVENESS_BOUND_US,
        )
    )
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def healed_group() -> Rows:
    """Return rows of a group that is Stable when all faults are healed at 40 s.

    Its members are C0 and C1. Since a failover at 8 s its coordinator is broker-1.
    """
    rows = Rows()
    rows.group_state(1, "broker-0", "CompletingRebalance", "Stable")
    for consumer in (C0, C1):
        rows.member_state(1, consumer, "STABLE")
        rows.assigned(1, consumer)
    rows.group_loaded(8, "broker-1")
    rows.stage(39, "healing")
    rows.stage(40, "liveness")
    return rows


def elect(rows: Rows, time_s: float, partition: str, leader: str, isr: list[int]) -> None:
    """Let the controller elect `leader` for the partition. "" means no leader."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=partition,
        peer=leader,
        detail={"isr": isr, "reason": "test"},
    )


def change_isr(rows: Rows, time_s: float, partition: str, isr: list[int]) -> None:
    """Change the ISR of the partition to the brokers with these ids."""
    rows.add(
        time_s, "controller-100", TraceKind.ISR_CHANGED, partition=partition, detail={"isr": isr}
    )


def lose_power(rows: Rows, time_s: float, broker: str) -> None:
    """Let the machine of the broker lose power, with all data that is not on the disk."""
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=broker, cause="power loss")


def finish(rows: Rows, verifying_s: float) -> Rows:
    """Add the end of the run, and return the rows.

    The checker watches the groups until the stage "verifying" begins, at `verifying_s`.
    """
    rows.stage(verifying_s, "verifying")
    rows.stage(verifying_s + 1, "stopping")
    return rows


def test_group_that_commits_again_after_healing_passes() -> None:
    """Both members commit after the healing at 40 s, the slower one after 0.3 s."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.committed(40.3, C1, offset=1)

    report = check(finish(rows, verifying_s=41))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["slowest_after_healing_us"] == 300_000


def test_member_that_never_commits_again_is_found() -> None:
    """Planted bug: C1 does not look for another coordinator when its coordinator has died.

    KAFKA-12890 is a similar bug.
    """
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} has no commit acknowledged since healing" in report.findings[0].summary


def test_group_stuck_in_a_rebalance_is_found() -> None:
    """Planted bug: the coordinator begins a rebalance, and never completes it."""
    rows = healed_group()
    rows.group_state(40.5, "broker-1", "Stable", "PreparingRebalance")
    rows.member_state(40.6, C0, "PREPARING_REBALANCE")

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.VIOLATED
    assert "its coordinator has it PreparingRebalance" in report.findings[0].summary
    assert "broker-1" in "\n".join(report.findings[0].story)


def test_group_that_recovered_too_late_is_found() -> None:
    """C1 commits at 105 s, but the group should be live at 100 s (40 s + 60 s)."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.committed(105, C1, offset=1)

    assert check(finish(rows, verifying_s=106)).outcome is CheckOutcome.VIOLATED


def test_group_without_quorum_is_allowed_to_be_down() -> None:
    """The group's partition of `__consumer_offsets` cannot take commits.

    The partition has only one replica in sync, but min.insync.replicas is 2.
    """
    rows = healed_group()
    change_isr(rows, 41, OFFSETS_0, isr=[1])

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "under min.insync.replicas 2" in report.note


def test_group_that_was_observed_too_briefly_proves_nothing() -> None:
    """The group is not live, but it was watched only for 5 s."""
    report = check(finish(healed_group(), verifying_s=45))

    assert report.outcome is CheckOutcome.INCONCLUSIVE


def test_group_that_does_not_commit_only_needs_to_be_stable() -> None:
    """If the experiment says that its members never commit, the group is live without commits."""
    assert check(finish(healed_group(), verifying_s=41), commits=False).outcome is CheckOutcome.PASS


def test_old_coordinator_that_unloads_late_does_not_matter() -> None:
    """broker-0 was the coordinator before, and unloads the group only at 40.15 s (state Dead).

    This does not matter, because the group is Stable at its present coordinator, broker-1.
    """
    rows = healed_group()
    rows.load_completed(40.1, "broker-1", leader_epoch=1)
    rows.group_state(40.15, "broker-0", "Stable", "Dead")
    rows.committed(40.2, C0, offset=1)
    rows.committed(40.3, C1, offset=1)

    assert check(finish(rows, verifying_s=41)).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("cause", ["already loaded or loading", "stale leader epoch"])
def test_broker_that_is_elected_again_may_coordinate_without_a_load(
    cause: str,
) -> None:
    """broker-0 learns that it is the coordinator again, in epoch 2, but does not load the group.

    `cause` is the reason why broker-0 does not load the group:

    - "already loaded or loading": broker-0 has never learned that broker-1 replaced it. So broker-0
      still has the group in memory, and coordinates it. The group is live.
    - "stale leader epoch": broker-0 knows a newer epoch, so it does not coordinate the group.

    Corpus: `coordinator_elected_again_before_it_heard_of_another`.
    """
    rows = healed_group()
    rows.load_completed(40.05, "broker-1", leader_epoch=1)
    rows.add(
        40.1,
        "broker-0",
        TraceKind.LOAD_IGNORED,
        partition=OFFSETS_0,
        leader_epoch=2,
        cause=cause,
        detail={"known_epoch": 2},
    )
    rows.group_state(40.15, "broker-1", "PreparingRebalance", "Dead")
    rows.committed(40.2, C0, offset=1)
    rows.committed(40.3, C1, offset=1)

    is_live = check(finish(rows, verifying_s=101)).outcome is CheckOutcome.PASS
    assert is_live is (cause == "already loaded or loading")


def test_group_that_its_newest_coordinator_does_not_have_is_found() -> None:
    """Planted bug: broker-2 replaces broker-1, and loads its log without finding the group."""
    rows = healed_group()
    rows.load_completed(40.1, "broker-2", leader_epoch=2)
    rows.committed(40.2, C0, offset=1)
    rows.committed(40.3, C1, offset=1)

    report = check(finish(rows, verifying_s=101))

    assert report.outcome is CheckOutcome.VIOLATED
    assert "its coordinator has it not loaded" in report.findings[0].summary


def test_member_without_partitions_need_not_commit() -> None:
    """C1 has no partition, so it has nothing to commit."""
    rows = healed_group()
    rows.assigned(40.1, C1, partitions=0)
    rows.committed(40.2, C0, offset=1)

    assert check(finish(rows, verifying_s=41)).outcome is CheckOutcome.PASS


def test_static_member_whose_id_a_failover_lost_is_not_expected() -> None:
    """A static member may end with the error FENCED_INSTANCE_ID because of a failover.

    1. C0 restarts, and broker-1 replaces the member id "old" of C0 by "new".
    2. Before broker-1 has stored the new id, broker-2 takes over, and loads the id "old".
    3. C0 sends a request with the id "new". broker-2 fences C0, so the application of C0 ends.

    After these steps the group may be live without C0. Without step 2 (`is_lost` is False) the
    group must have C0.

    Corpus: `static_member_whose_new_id_was_never_stored`.
    """
    for is_lost in (True, False):
        rows = healed_group()
        rows.member_added(36, "broker-1", "new", instance="i-0")
        if is_lost:
            rows.group_loaded(37, "broker-2", members=["old", f"{C1}-id"])
            rows.load_completed(37.1, "broker-2", leader_epoch=2)
        rows.committed(40.2, C1, offset=1)
        rows.member_state(
            41, C0, "UNJOINED", before="STABLE", member="new", error="FENCED_INSTANCE_ID"
        )
        verifying_s = 101
        if is_lost:
            rows.group_state(42, "broker-2", "CompletingRebalance", "Stable")
            # The session of "old" ends, so broker-2 must remove "old" by 87 s: 37 s, the session
            # timeout of 45 s, and 5 s for delays. The trace does not have this removal, which would
            # be another finding. So the trace ends before 87 s.
            verifying_s = 85

        report = check(finish(rows, verifying_s))

        assert (report.outcome is CheckOutcome.PASS) is is_lost, report.note


def fenced_after_it_was_stable() -> Rows:
    """Return rows of C0, a static member that gets a new member id at broker-1.

    C0 becomes STABLE with its new id. So broker-1 has answered the SyncGroup of C0, and must have
    stored the new id before this answer.
    """
    rows = healed_group()
    rows.load_completed(8, "broker-1", leader_epoch=1)
    rows.member_added(36, "broker-1", "new", instance="i-0")
    rows.member_state(36.5, C0, "STABLE", member="new")
    return rows


def fence_at_the_next_coordinator(rows: Rows) -> CheckReport:
    """Let broker-2 take over with the old id of C0, and fence C0. Return the checker's report."""
    rows.group_loaded(42, "broker-2", members=["old", f"{C1}-id"])
    rows.load_completed(42, "broker-2", leader_epoch=2)
    rows.member_state(42.5, C0, "UNJOINED", member="new", cause="left", error="FENCED_INSTANCE_ID")
    rows.committed(43, C1, offset=1)
    # broker-2 gets requests of both members, so that it need not remove a member because of its
    # session.
    for member in ("old", f"{C1}-id"):
        rows.session_restarted(80, "broker-2", member)
    return check(finish(rows, verifying_s=110))


def test_static_member_fenced_after_it_was_stable_is_found() -> None:
    """Planted bug: broker-1 answers with a new member id that it has not stored."""
    report = fence_at_the_next_coordinator(fenced_after_it_was_stable())

    assert report.outcome is CheckOutcome.VIOLATED
    assert report.excused == {}


def test_stored_id_that_is_lost_with_the_last_replica_in_sync_is_excused() -> None:
    """broker-2 had the only replica in sync when it lost power. So the new id may be lost."""
    rows = fenced_after_it_was_stable()
    change_isr(rows, 41, OFFSETS_0, isr=[2])
    lose_power(rows, 41.1, "broker-2")
    elect(rows, 41.9, OFFSETS_0, leader="broker-2", isr=[2])

    report = fence_at_the_next_coordinator(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.excused == {"member id that was never stored": 1}
    assert f"excused: {C0} stopped" in report.note


def end_application(rows: Rows, time_s: float, error: str) -> None:
    """Let the application of C0 end, because its call of `poll` has thrown this error."""
    rows.member_state(
        time_s, C0, "UNJOINED", before="PREPARING_REBALANCE", cause="left", error=error
    )


def test_consumer_stopped_by_an_error_is_found_even_before_the_steady_state() -> None:
    """The application of C0 ends at 3 s, while the cluster is still starting."""
    rows = Rows()
    end_application(rows, 3, "INCONSISTENT_GROUP_PROTOCOL")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert finding.summary == (
        f"{C0} of g has stopped for good: INCONSISTENT_GROUP_PROTOCOL ended its application"
    )


def test_group_is_judged_without_a_consumer_that_an_error_has_stopped() -> None:
    """The only finding is that C0's application has ended. The group is live with C1 alone."""
    rows = healed_group()
    end_application(rows, 41, "UNKNOWN_SERVER_ERROR")
    rows.committed(42, C1, offset=1)

    assert check(finish(rows, verifying_s=110)).findings_total == 1


def test_consumer_without_an_offset_and_with_reset_none_is_excused() -> None:
    """C0 has `auto.offset.reset=none`, and finds no committed offset. So it is right to end."""
    rows = healed_group()
    end_application(rows, 41, "NO_OFFSET_FOR_PARTITION")
    rows.committed(42, C1, offset=1)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.PASS
    assert report.excused == {"application that its settings end": 1}
    assert f"excused: {C0} stopped: its settings ask for NO_OFFSET_FOR_PARTITION" in report.note


def test_consumer_that_is_refused_by_a_group_with_room_is_found() -> None:
    """C0 is refused as if the group were full. But there are only two consumers.

    The limit (`group.max.size`) is larger.
    """
    rows = healed_group()
    end_application(rows, 41, "GROUP_MAX_SIZE_REACHED")
    rows.committed(42, C1, offset=1)

    assert check(finish(rows, verifying_s=110)).findings_total == 1


@pytest.mark.parametrize(
    ("same_assignors", "findings", "excused"),
    [(True, 1, {}), (False, 0, {"application that its settings end": 1})],
)
def test_refusal_of_a_consumer_is_excused_by_different_assignors(
    same_assignors: bool, findings: int, excused: dict[str, int]
) -> None:
    """A group may refuse a consumer that has no assignor in common with the other members.

    An assignor is a way to assign partitions. If all members have the same assignors, the refusal
    is a finding.
    """
    rows = healed_group()
    end_application(rows, 41, "INCONSISTENT_GROUP_PROTOCOL")
    rows.committed(42, C1, offset=1)

    report = check(finish(rows, verifying_s=110), same_assignors=same_assignors)

    assert report.findings_total == findings
    assert report.excused == excused


def test_consumer_that_is_stopped_or_loses_its_generation_is_no_finding() -> None:
    """C0 is UNJOINED twice, but no error ends its application.

    At 41 s C0 gets UNKNOWN_MEMBER_ID, and joins again. At 43 s C0 leaves by itself.
    """
    rows = healed_group()
    rows.member_state(41, C0, "UNJOINED", before="STABLE", cause="error", error="UNKNOWN_MEMBER_ID")
    rows.member_state(42, C0, "STABLE")
    rows.committed(42, C0, offset=1)
    rows.committed(42, C1, offset=1)
    rows.member_state(43, C0, "UNJOINED", before="STABLE", cause="left")

    assert check(finish(rows, verifying_s=110)).findings_total == 0


def check_with_short_isr(*, unfenced_s: float) -> CheckReport:
    """Return the report of a group that cannot commit from 30 s to the end of the watch at 200 s.

    The partition of the group needs two replicas in sync, but broker-2 is missing in the ISR. From
    `unfenced_s` on broker-2 is up again. Then it has 120 s (the default of `isr_recovery_us`) to
    return to the ISR.
    """
    rows = healed_group()
    elect(rows, 1, OFFSETS_0, leader="broker-1", isr=[1, 2])
    elect(rows, 30, OFFSETS_0, leader="broker-1", isr=[1])
    rows.add(1, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.add(unfenced_s, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-2")
    return check(finish(rows, verifying_s=200))


def test_isr_that_stays_incomplete_although_its_brokers_live_is_no_excuse() -> None:
    """Planted bug: the leader never adds broker-2 to the ISR again.

    broker-2 is up at the healing (40 s), so it had 160 s to return to the ISR.
    """
    report = check_with_short_isr(unfenced_s=35)

    assert report.outcome is CheckOutcome.VIOLATED
    assert report.excused == {}


def test_isr_is_an_excuse_until_its_broker_has_lived_long_enough() -> None:
    """broker-2 has been up for 110 s, so it may still be fetching the records that it lacks."""
    report = check_with_short_isr(unfenced_s=90)

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert report.excused == {"too few replicas in sync": 1}
    assert "excused: g is not live: __consumer_offsets-0 has 1 replica(s) in sync" in report.note


def test_lost_data_of_transactions_does_not_excuse_a_group_that_is_not_stable() -> None:
    """The partition of the transactions loses data: its only replica in sync is that of broker-2.

    broker-2 loses power and leads again. So a transaction may never end, and may block the commits
    of a Stable group for ever. This is no excuse for a group that is rebalancing, because a
    transaction blocks no rebalance.
    """
    for state, outcome in (
        ("Stable", CheckOutcome.INCONCLUSIVE),
        ("PreparingRebalance", CheckOutcome.VIOLATED),
    ):
        rows = healed_group()
        change_isr(rows, 30, TRANSACTIONS, isr=[2])
        lose_power(rows, 31, "broker-2")
        elect(rows, 32, TRANSACTIONS, leader="broker-2", isr=[2])
        change_isr(rows, 33, TRANSACTIONS, isr=[0, 1, 2])
        if state != "Stable":
            rows.group_state(41, "broker-1", "Stable", state)

        report = check(finish(rows, verifying_s=110), transactions=(TRANSACTIONS,))

        assert report.outcome is outcome, report.note


@pytest.mark.parametrize("old_coordinator", ["serves", "has unloaded", "is dead"])
def test_static_member_that_a_replaced_coordinator_fences_is_not_expected(
    old_coordinator: str,
) -> None:
    """A static member may end because it asks a broker that is not its coordinator any more.

    1. broker-2 is the coordinator, and has the id "old" of C0 in memory.
    2. broker-1 becomes the coordinator, and replaces the id of C0 by "new".
    3. C0 asks broker-2 with the id "new". broker-2 fences C0, so the application of C0 ends.

    C0 is excused only if broker-2 still has the group in step 3.

    Corpus: `static_member_fenced_by_a_replaced_coordinator`.
    """
    rows = healed_group()
    rows.member_added(35, "broker-2", "old", instance="i-0")
    if old_coordinator == "has unloaded":
        rows.unloaded(35.5, "broker-2", leader_epoch=1)
    if old_coordinator == "is dead":
        rows.add(35.5, "driver", TraceKind.NODE_KILLED, peer="broker-2")
    rows.member_added(36, "broker-1", "new", instance="i-0")
    rows.committed(40.2, C1, offset=1)
    rows.member_state(41, C0, "UNJOINED", before="STABLE", member="new", error="FENCED_INSTANCE_ID")

    report = check(finish(rows, verifying_s=101))

    is_excused = report.outcome is CheckOutcome.PASS
    assert is_excused is (old_coordinator == "serves"), report.note


@pytest.mark.parametrize("is_heard_later", [False, True])
@pytest.mark.parametrize("is_loaded", [True, False])
def test_application_may_hear_late_that_a_replaced_coordinator_fenced_it(
    is_loaded: bool, is_heard_later: bool
) -> None:
    """The steps are those of the test above, but C0's application learns of the error only at 41 s.

    At 38 s broker-2 becomes the coordinator again, and loads the group. So at 41 s
    broker-2 has the id "new" (`is_loaded`), or no longer has this id because the session of C0 has
    expired meanwhile.

    If a coordinator has accepted a request with the id "new" after this load, C0 had not been
    fenced before. Then C0 is expected to be a member.

    Corpus: `static_member_hears_late_that_it_was_fenced`.
    """
    rows = healed_group()
    rows.member_added(35, "broker-2", "old", instance="i-0")
    rows.member_added(36, "broker-1", "new", instance="i-0")
    rows.session_restarted(36.5, "broker-1", "new")
    rows.member_state(36.6, C0, "STABLE", member="new")
    rows.unloaded(37.9, "broker-1", leader_epoch=2)
    members = ["new", f"{C1}-id"] if is_loaded else [f"{C1}-id"]
    rows.group_loaded(38, "broker-2", members=members)
    rows.load_completed(38, "broker-2", leader_epoch=2)
    if is_heard_later:
        rows.session_restarted(39, "broker-2", "new")
    rows.committed(40.2, C1, offset=1)
    rows.member_state(41, C0, "UNJOINED", before="STABLE", member="new", error="FENCED_INSTANCE_ID")
    for member in members:  # so that broker-2 need not remove a silent member
        rows.session_restarted(80, "broker-2", member)

    report = check(finish(rows, verifying_s=101))

    is_excused = report.outcome is CheckOutcome.PASS
    assert is_excused is not is_heard_later, report.note


def test_run_that_never_healed_is_inconclusive() -> None:
    """Groups are judged from the healing on. This run stops before its faults are healed."""
    rows = Rows()
    rows.stage(1, "stopping")

    assert check(rows).outcome is CheckOutcome.INCONCLUSIVE


def test_killed_member_that_was_not_restarted_is_not_expected() -> None:
    """C1 is killed and stays down. The group is live without C1, which is enough."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.add(40.5, "driver", TraceKind.NODE_KILLED, peer=C1)

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["members_absent"] == 1


def test_restarted_member_must_become_live() -> None:
    """C1 is killed and starts again. Its new process does not commit.

    In the first trace the group was live before C1 was killed, which is enough. In the second trace
    the group was not live before, so C1 must join and commit.
    """
    after_live = healed_group()
    after_live.committed(40.2, C0, offset=1)
    after_live.committed(40.3, C1, offset=1)
    after_live.group_state(40.35, "broker-1", "Stable", "PreparingRebalance")
    after_live.add(40.4, "driver", TraceKind.NODE_KILLED, peer=C1)
    after_live.add(40.5, C1, TraceKind.NODE_STARTED, incarnation=1, detail={"role": "consumer"})
    after_live.group_state(41, "broker-1", "CompletingRebalance", "Stable", generation=2)

    assert check(finish(after_live, verifying_s=100)).outcome is CheckOutcome.PASS

    before_live = healed_group()
    before_live.add(40.1, "driver", TraceKind.NODE_KILLED, peer=C1)
    before_live.add(40.15, C1, TraceKind.NODE_STARTED, incarnation=1, detail={"role": "consumer"})
    before_live.committed(40.2, C0, offset=1)

    report = check(finish(before_live, verifying_s=110))

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} is never seen" in report.findings[0].summary


def test_late_member_is_expected_once_it_was_started() -> None:
    """C1 is a late member, which the experiment starts during the run. It has no commit.

    In the first trace C1 is never started, so nothing is expected of it. In the second trace C1 is
    started at 38 s, so it must commit.
    """
    not_started = healed_group()
    not_started.committed(40.2, C0, offset=1)
    report = check(finish(not_started, verifying_s=110), late=(C1,))
    assert report.outcome is CheckOutcome.PASS

    started = healed_group()
    started.add(38, C1, TraceKind.NODE_STARTED, detail={"role": "consumer"})
    started.committed(40.2, C0, offset=1)
    report = check(finish(started, verifying_s=110), late=(C1,))
    assert report.outcome is CheckOutcome.VIOLATED


def test_group_without_live_members_proves_nothing() -> None:
    """Both members are killed after the healing, so no member could make the group live."""
    rows = healed_group()
    for consumer in (C0, C1):
        rows.add(40.1, "driver", TraceKind.NODE_KILLED, peer=consumer)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "all its members are dead" in report.note


def test_member_whose_partition_has_no_leader_need_not_commit() -> None:
    """C1 owns t-0, which has no leader. So C1 can read nothing, and has nothing to commit."""
    rows = healed_group()
    elect(rows, 30, "t-0", leader="", isr=[])
    rows.committed(40.2, C0, offset=1)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "t-0 has no leader" in report.note


def test_partition_that_gets_no_leader_although_a_broker_could_lead_is_found() -> None:
    """Planted bug: the controller elects no leader of t-0 when broker-2 is back at 41 s.

    broker-2 has the only replica of t-0 in sync. So it is right that t-0 has no leader before 41 s.
    """
    rows = healed_group()
    rows.add(30, "controller-100", TraceKind.BROKER_FENCED, peer="broker-2")
    elect(rows, 30, "t-0", leader="", isr=[2])
    rows.committed(40.2, C0, offset=1)
    rows.add(41, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-2")

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.VIOLATED


def test_partition_whose_last_replica_in_sync_is_stopping_need_have_no_leader() -> None:
    """broker-2 has the only replica of t-0 in sync, and is stopping.

    A broker that is stopping is not fenced yet, but must not become a leader.
    """
    rows = healed_group()
    rows.add(29, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-2")
    rows.add(30, "driver", TraceKind.NODE_STOPPING, peer="broker-2")
    elect(rows, 30, "t-0", leader="", isr=[2])
    rows.committed(40.2, C0, offset=1)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "t-0 has no leader" in report.note


@pytest.mark.parametrize(
    ("has_leader", "why"),
    [
        (False, "__transaction_state-1 has no leader"),
        (True, "under min.insync.replicas 3"),
    ],
)
def test_transactional_members_need_the_topic_of_transactions(has_leader: bool, why: str) -> None:
    """The members commit in transactions, and the partition of the transactions takes no records.

    Either it has no leader, or it has two replicas in sync and needs three. For a group without
    transactions this is no excuse.
    """
    rows = healed_group()
    if has_leader:
        change_isr(rows, 41, TRANSACTIONS, isr=[1, 2])
    else:
        elect(rows, 41, TRANSACTIONS, leader="", isr=[2])
    finish(rows, verifying_s=110)

    report = check(rows, transactions=(TRANSACTIONS,))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert why in report.note
    without_transactions = check(rows)
    assert without_transactions.outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize("partition", [TRANSACTIONS, OFFSETS_0])
def test_transaction_whose_end_was_lost_may_stay_open_for_ever(partition: str) -> None:
    """broker-2 has the only replica in sync of `partition`. It loses power and leads again.

    - If `partition` is TRANSACTIONS, the transaction coordinator may have forgotten a transaction.
    - If `partition` is OFFSETS_0, the group's log may have lost the marker that ends a transaction.

    For a group without transactions this is no excuse.
    """
    rows = healed_group()
    elect(rows, 0, partition, leader="broker-2", isr=[2])
    lose_power(rows, 41, "broker-2")
    elect(rows, 42, partition, leader="broker-2", isr=[2])
    change_isr(rows, 43, partition, isr=[2, 1, 0])
    finish(rows, verifying_s=110)

    report = check(rows, transactions=(TRANSACTIONS,))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert f"{partition} lost data" in report.note
    without_transactions = check(rows)
    assert without_transactions.outcome is CheckOutcome.VIOLATED


def test_member_that_its_coordinator_does_not_have_is_found() -> None:
    """Planted bug: C1 ignores UNKNOWN_MEMBER_ID, and stays STABLE without being a member.

    Generation 2 has only C0. In the first trace this generation begins at 40.5 s. The group was
    live before, at 40 s, because it was Stable and need not commit. So nothing is found. In the
    second trace generation 2 begins before the healing, so the group was never live.
    """
    after_live = healed_group()
    after_live.generation_started(40.5, "broker-1", generation=2, members=(f"{C0}-id",))
    after_live.group_state(40.6, "broker-1", "CompletingRebalance", "Stable", generation=2)
    after_live.committed(41, C0, offset=1)
    after_live.committed(41, C1, offset=1)

    report = check(finish(after_live, verifying_s=110), commits=False)

    assert report.outcome is CheckOutcome.PASS

    before_live = Rows()
    for consumer in (C0, C1):
        before_live.member_state(1, consumer, "STABLE")
    before_live.generation_started(30, "broker-1", generation=2, members=(f"{C0}-id",))
    before_live.group_state(30.6, "broker-1", "CompletingRebalance", "Stable", generation=2)
    before_live.stage(40, "liveness")

    report = check(finish(before_live, verifying_s=110), commits=False)

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} is {C1}-id, whom its coordinator does not know" in report.findings[0].summary


def test_application_that_exceeds_its_own_max_poll_interval_proves_nothing() -> None:
    """The application may need 50 s between two polls, and `max.poll.interval.ms` is 15 s.

    So its members leave the group and rejoin again and again.
    """
    rows = finish(healed_group(), verifying_s=110)
    slow_group = GroupExpectation(
        consumers=(C0, C1),
        offsets_partition=OFFSETS_0,
        commits=True,
        application_us=50_000_000,  # longest time between two polls
        max_poll_interval_us=15_000_000,
    )
    checker = Liveness(CheckContext(groups={"g": slow_group}, min_insync_replicas=1))
    for row in rows.rows:
        checker.observe(row)

    report = checker.finish()

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "may take 50 s between two polls, max.poll.interval.ms is 15 s" in report.note


def test_group_that_waits_for_the_session_of_a_dead_member_proves_nothing_yet() -> None:
    """C1 dies at 35 s, restarts, and joins with a new id.

    The group still has the member "old-id". The rebalance cannot end before the session of this
    member has ended. The last heartbeat of "old-id" may have arrived 3 s after the death of C1. So
    the session may end at 83 s (35 s + 3 s + 45 s).
    """

    def report_of_a_watch(*, verifying_s: float) -> CheckReport:
        """Return the report of a group that is watched until `verifying_s`."""
        rows = Rows()
        rows.generation_started(30, "broker-1", generation=2, members=(f"{C0}-id", "old-id"))
        rows.member_state(30, C0, "STABLE")
        rows.add(35, "driver", TraceKind.NODE_KILLED, peer=C1)
        rows.add(36, C1, TraceKind.NODE_STARTED, incarnation=1, detail={"role": "consumer"})
        rows.group_state(37, "broker-1", "Stable", "PreparingRebalance")
        rows.member_state(37, C1, "PREPARING_REBALANCE")
        rows.stage(40, "liveness")
        rows.stage(verifying_s, "verifying")

        checker = Liveness(
            CheckContext(
                groups={
                    "g": GroupExpectation(
                        consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=False
                    )
                },
                liveness_timeout_us=20_000_000,
            )
        )
        for row in rows.rows:
            checker.observe(row)
        return checker.finish()

    waiting = report_of_a_watch(verifying_s=61)

    assert waiting.outcome is CheckOutcome.INCONCLUSIVE
    assert "whose session may end at 83 s" in waiting.note
    assert report_of_a_watch(verifying_s=90).outcome is CheckOutcome.VIOLATED


def silent_member(*, until_s: float) -> Rows:
    """Return rows of two members, "silent" and "other", that send heartbeats to broker-0.

    The last heartbeat of "silent" is at 10 s, and that of "other" at `until_s`.
    """
    rows = Rows()
    rows.session_restarted(10, "broker-0", "silent")
    # The checker judges sessions at each row, but must report a session only once.
    rows.session_restarted(until_s - 0.1, "broker-0", "other")
    rows.session_restarted(until_s, "broker-0", "other")
    return rows


def test_silent_member_that_is_not_removed_after_its_session_is_found() -> None:
    """Planted bug: the coordinator sets no timer for a session.

    The session of "silent" ends at 55 s (10 s + 45 s). A broker may be busy, so the checker gives
    it 5 s more. So the member must be removed by 60 s.
    """
    assert check(silent_member(until_s=59.9)).findings_total == 0

    (finding,) = check(silent_member(until_s=60.2)).findings

    assert finding.summary == (
        "broker-0 keeps silent in g, of whom it has not heard for longer than its session of 45 s"
    )
    assert [row.member for row in finding.evidence] == ["silent"]


def test_member_that_returns_after_a_finding_is_judged_again() -> None:
    """The finding is about the session that should have ended at 55 s.

    At 61 s "silent" is back, and at 106 s (61 s + 45 s) its next session should end, too.
    """
    rows = silent_member(until_s=60.2)
    rows.session_restarted(61, "broker-0", "silent")
    rows.session_restarted(100, "broker-0", "other")
    rows.session_restarted(112, "broker-0", "other")

    report = check(rows)

    assert [finding.evidence[0].time_us for finding in report.findings] == [10_000_000, 61_000_000]


@pytest.mark.parametrize(
    "why",
    ["removed", "unloaded", "its broker is dead", "its broker stands still", "its disk is slow"],
)
def test_session_counts_only_while_member_and_broker_are_undisturbed(
    why: str,
) -> None:
    """The member "silent" is silent from 10 s to 81 s, but broker-0 need not remove it.

    `why` says what has happened at 50 s, before the end of its session.
    """
    rows = Rows()
    rows.session_restarted(10, "broker-0", "silent")
    match why:
        case "removed":
            rows.member_removed(50, "broker-0", "silent")
        case "unloaded":
            rows.unloaded(50, "broker-0", leader_epoch=1)
        case "its broker is dead":
            rows.add(50, "driver", TraceKind.NODE_KILLED, peer="broker-0")
        case "its broker stands still":
            rows.add(50, "driver", TraceKind.NODE_PAUSED, peer="broker-0")
        case _:
            rows.add(50, "driver", TraceKind.FAULT_INJECTED, peer="broker-0", cause="slow_disk-1")
    rows.session_restarted(80, "broker-1", "other")
    rows.session_restarted(81, "broker-1", "other")

    assert check(rows).findings_total == 0


@pytest.mark.parametrize("last_request", ["JoinGroup", "Heartbeat"])
def test_member_that_waits_for_its_join_is_expired_only_after_the_answer(last_request: str) -> None:
    """While members rejoin, a member may wait for the answer to its JoinGroup and send nothing.

    So the session of such a member does not end before the rejoining ends, at 210 s. Then a session
    of 45 s begins. When this session is over, the silent member must be removed.
    """
    rows = Rows()
    rows.group_state(9, "broker-0", "Stable", "PreparingRebalance")
    rows.session_restarted(10, "broker-0", "silent", api=last_request)
    for time_s in (100, 200):
        rows.session_restarted(time_s, "broker-0", "other")
    assert check(rows).findings_total == 0

    rows.group_state(210, "broker-0", "PreparingRebalance", "CompletingRebalance")
    rows.group_state(211, "broker-0", "CompletingRebalance", "Stable")
    for time_s in (250, 290, 330):
        rows.session_restarted(time_s, "broker-0", "other")
    assert check(rows).findings_total == 1


def add_offset_to_transaction(rows: Rows, time_s: float, producer_id: int) -> None:
    """Let the coordinator of group `g` take an offset of a producer's open transaction."""
    rows.add(
        time_s,
        "broker-1",
        TraceKind.TXN_COMMIT_PENDING,
        group="g",
        partition="t-0",
        offset=7,
        detail={"producer_id": producer_id},
    )


def transaction_state(rows: Rows, time_s: float, producer_id: int, state: str) -> None:
    """Let the transaction of a producer enter `state`."""
    rows.add(
        time_s,
        "broker-2",
        TraceKind.TRANSACTION_STATE,
        partition=TRANSACTIONS,
        detail={
            "from": "Ongoing",
            "to": state,
            "transactional_id": "any",
            "producer_id": producer_id,
            "producer_epoch": 0,
        },
    )


def test_finding_of_a_group_names_the_transactions_and_partitions_that_block_it() -> None:
    """The group is not live, and two things may be the reason.

    - The transaction of producer 1 has not ended. The transactions of the producers 2 and 3 have.
    - OFFSETS_0 has only one replica in sync. TRANSACTIONS has all three.

    The finding has the rows about producer 1 and about OFFSETS_0, and leaves out the other rows.
    """
    rows = healed_group()
    for producer_id, state in ((1, "PrepareCommit"), (2, "CompleteCommit")):
        add_offset_to_transaction(rows, 20, producer_id=producer_id)
        transaction_state(rows, 21, producer_id=producer_id, state=state)
    add_offset_to_transaction(rows, 22, producer_id=3)
    rows.add(
        23,
        "broker-1",
        TraceKind.TRANSACTION_COMPLETED,
        group="g",
        detail={"producer_id": 3, "committed": True, "offsets": 1},
    )
    change_isr(rows, 1, OFFSETS_0, isr=[0, 1, 2])
    change_isr(rows, 30, OFFSETS_0, isr=[1])
    change_isr(rows, 1, TRANSACTIONS, isr=[0, 1, 2])
    change_isr(rows, 30, TRANSACTIONS, isr=[0, 1, 2])
    for broker in ("broker-0", "broker-1", "broker-2"):
        rows.add(2, "controller-100", TraceKind.BROKER_UNFENCED, peer=broker)

    # At 300 s the short ISR is no excuse any more, because all brokers have been up for long.
    (finding,) = check(finish(rows, verifying_s=300), transactions=(TRANSACTIONS,)).findings

    # The first three rows say that the three brokers are up.
    led_to = [(row.kind, row.time_us // 1_000_000) for row in finding.led_to]
    assert led_to[3:] == [
        (TraceKind.TXN_COMMIT_PENDING, 20),
        (TraceKind.TRANSACTION_STATE, 21),
        (TraceKind.ISR_CHANGED, 30),
    ]


def test_finding_names_the_waiting_request() -> None:
    """C1 waits for the answers to two requests, and the finding names only the JoinGroup.

    The other request, a Fetch, has waited for 0.4 s, which is usual.
    """
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    for api, waited_us in (("JoinGroup", 30_000_000), ("Fetch", 400_000)):
        rows.add(
            100,
            "driver",
            TraceKind.REQUEST_WAITING,
            group="g",
            api=api,
            peer="broker-1",
            detail={"consumer": C1, "waited_us": waited_us},
        )

    (finding,) = check(finish(rows, verifying_s=101)).findings

    waiting = [row.api for row in finding.led_to if row.kind == TraceKind.REQUEST_WAITING]
    assert waiting == ["JoinGroup"]


@pytest.mark.parametrize(("bound_s", "is_found"), [(30, True), (90, False), (None, False)])
def test_cluster_that_never_reaches_its_steady_state_is_found(
    bound_s: int | None, is_found: bool
) -> None:
    """Planted bug: no member ever joins the group.

    Before its first fault a run waits until all groups are Stable. This run has waited for 60 s,
    and the group is still Empty. `bound_s` is the longest time that a healthy cluster needs. A run
    in real time has no such bound (None).
    """
    rows = Rows()
    rows.add(
        60,
        "driver",
        TraceKind.STEADY_STATE_MISSED,
        detail={"waited_us": 60_000_000, "missing": ["group g is Empty"]},
    )
    start_bound_us = None if bound_s is None else bound_s * 1_000_000
    checker = Liveness(CheckContext(start_bound_us=start_bound_us))
    for row in rows.rows:
        checker.observe(row)

    report = checker.finish()

    assert bool(report.findings) == is_found
    if is_found:
        assert "although nothing was broken: group g is Empty" in report.findings[0].summary


@pytest.mark.parametrize("is_live", [True, False])
def test_unreadable_offsets_of_a_live_group_are_found(is_live: bool) -> None:
    """Planted bug: the coordinator never answers an OffsetFetch.

    At the end of the run an administrator cannot read the committed offsets. This is a finding only
    if the group is live. If the group is not live, the only finding is that it is not live.
    """
    rows = healed_group()
    if is_live:
        rows.committed(40.2, C0, offset=1)
        rows.committed(40.3, C1, offset=1)
    rows.stage(100, "verifying")
    rows.add(
        101,
        "driver",
        TraceKind.OFFSETS_UNREADABLE,
        group="g",
        partition="orders-0",
        cause_text="no answer",
    )
    rows.stage(102, "stopping")

    (finding,) = check(rows).findings

    unreadable = "no administrator can read the committed offset of g for orders-0"
    assert finding.summary.startswith(unreadable) is is_live


@pytest.mark.parametrize(("api", "is_found"), [("Heartbeat", True), ("OffsetCommit", False)])
def test_commits_that_do_not_restart_a_session_are_found(api: str, is_found: bool) -> None:
    """Planted bug: only heartbeats restart the session of a member, and commits do not.

    Two commits of C0 are stored. Before that, two requests of C0 have restarted its session: one of
    the API `api`, and a heartbeat. If the first request was an OffsetCommit, commits do restart
    sessions, and nothing is found.
    """
    rows = healed_group()
    rows.session_restarted(41, "broker-1", f"{C0}-id", api=api)
    rows.session_restarted(41.1, "broker-1", f"{C0}-id")
    for time_s in (42, 43):
        rows.commit_stored(time_s, "broker-1", f"{C0}-id", generation=1, append_id=7)
    rows.committed(43.2, C0, offset=1)
    rows.committed(43.3, C1, offset=1)

    report = check(finish(rows, verifying_s=44))

    assert bool(report.findings) == is_found
    if is_found:
        assert "and none has restarted its session" in report.findings[0].summary
        assert len(report.findings) == 1


SESSION_EXCUSE = {"session of a dead member": 1}
"""What the report says if the next test's group is excused."""


@pytest.mark.parametrize(
    ("member", "removed_s", "findings", "excused"),
    [
        ("gone-id", 95, 0, SESSION_EXCUSE),
        ("gone-id", 70, 1, {}),  # after the removal C1 had 30 s for a commit
        (f"{C1}-id", 95, 1, {}),  # the removed member is not dead
    ],
)
def test_group_that_has_just_lost_a_dead_member_has_time_to_settle(
    member: str, removed_s: float, findings: int, excused: dict[str, int]
) -> None:
    """C1 has no commit up to the end of the watch at 100 s.

    This is excused if a dead member was removed shortly before, because C1 gets the partitions of
    this member only after the removal.
    """
    rows = healed_group()
    rows.member_removed(removed_s, "broker-1", member, "session expiry")
    rows.committed(96, C0, offset=1)

    report = check(finish(rows, verifying_s=100))

    assert report.findings_total == findings
    assert report.excused == excused
