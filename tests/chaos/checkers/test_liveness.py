"""The liveness checker finds groups that never recover, unless they need not recover.

Times are seconds of the trace. Most traces heal all faults at 40 s. From then on the checker gives
each group 60 s to become live: to be Stable, and to have a commit of each member acknowledged. A
group that does not become live is a finding, unless something excuses it. The outcome INCONCLUSIVE
means that the group need not have become live, or was not watched for 60 s.

"Planted bug" in a docstring names a bug that the test would find. "Corpus" names a file of
tests/corpus, which plays such a run.

Terms:

- A fault is healed when it is undone.
- The coordinator of a group is the broker that leads its offsets partition (a partition of
  `__consumer_offsets`). It loads the group into memory, and unloads it when it is replaced. The
  leader epoch is the number of its leadership. The ISR are the in-sync replicas.
- A fenced broker is one that the controller considers dead, until it is unfenced.
- A static member has a configured instance id. It is fenced if another member id has replaced its
  own.
- A generation is the group between two rebalances. In the states PreparingRebalance and
  CompletingRebalance its members rejoin and get partitions.
- A marker is the record that ends a transaction.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.liveness import Liveness
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
"""The two consumers of group `g`; their member ids are `consumer-g-0-id` and `consumer-g-1-id`."""
TRANSACTIONS = "__transaction_state-1"
"""The partition of the members' transaction coordinator, in tests with transactions."""
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
    """Return the checker's report of a trace. It observes the rows in the order of time.

    commits: False for members that are set never to commit.
    late: consumers that start during the run.
    transactions: the partitions of the members' transaction coordinators.
    same_assignors: True if all members support the same ways to assign partitions.
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
            # Two values, so that a note shows which of the two settings was applied.
            min_insync_replicas=2,
            transaction_min_isr=3,
            liveness_timeout_us=LIVENESS_BOUND_US,
        )
    )
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def healed_group() -> Rows:
    """Return rows of a Stable group of two, a failover to broker-1 at 8 s, and healing at 40 s."""
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
    """Let the controller elect the leader of a partition; "" for none."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=partition,
        peer=leader,
        detail={"isr": isr, "reason": "test"},
    )


def change_isr(rows: Rows, time_s: float, partition: str, isr: list[int]) -> None:
    """Let these brokers be the ISR of the partition from now on."""
    rows.add(
        time_s, "controller-100", TraceKind.ISR_CHANGED, partition=partition, detail={"isr": isr}
    )


def lose_power(rows: Rows, time_s: float, broker: str) -> None:
    """Let the machine of the broker lose power, with all data that is not on the disk."""
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=broker, cause="power loss")


def finish(rows: Rows, verifying_s: float) -> Rows:
    """End the checker's watch at `verifying_s`, and return the rows."""
    rows.stage(verifying_s, "verifying")
    rows.stage(verifying_s + 1, "stopping")
    return rows


def test_group_that_commits_again_after_healing_passes() -> None:
    """The slower member commits 0.3 s after healing."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.committed(40.3, C1, offset=1)

    report = check(finish(rows, verifying_s=41))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["slowest_after_healing_us"] == 300_000


def test_member_that_never_commits_again_is_found() -> None:
    """Planted bug: a client that stays with a dead coordinator (similar to KAFKA-12890)."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} has no commit acknowledged since healing" in report.findings[0].summary


def test_group_stuck_in_a_rebalance_is_found() -> None:
    """Planted bug: a join phase that never completes."""
    rows = healed_group()
    rows.group_state(40.5, "broker-1", "Stable", "PreparingRebalance")
    rows.member_state(40.6, C0, "PREPARING_REBALANCE")

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.VIOLATED
    assert "its coordinator has it PreparingRebalance" in report.findings[0].summary
    assert "broker-1" in "\n".join(report.findings[0].story)


def test_group_that_recovered_too_late_is_found() -> None:
    """C1 commits at 105 s, and the bound ends at 100 s."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.committed(105, C1, offset=1)

    assert check(finish(rows, verifying_s=106)).outcome is CheckOutcome.VIOLATED


def test_group_without_quorum_is_allowed_to_be_down() -> None:
    """The group's offsets partition has one replica in sync, and min.insync.replicas is 2."""
    rows = healed_group()
    change_isr(rows, 41, OFFSETS_0, isr=[1])

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "under min.insync.replicas 2" in report.note


def test_group_that_was_observed_too_briefly_proves_nothing() -> None:
    """The run ends the watch 5 s after healing, before the bound."""
    report = check(finish(healed_group(), verifying_s=45))

    assert report.outcome is CheckOutcome.INCONCLUSIVE


def test_group_that_does_not_commit_only_needs_to_be_stable() -> None:
    """The members are set never to commit."""
    assert check(finish(healed_group(), verifying_s=41), commits=False).outcome is CheckOutcome.PASS


def test_old_coordinator_that_unloads_late_does_not_matter() -> None:
    """broker-0 unloads the group (state Dead) after broker-1 has loaded it."""
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
    """broker-0 leads again in epoch 2, and ignores the order to load the group.

    If broker-0 did not learn of broker-1, it still has the group in memory ("already loaded"): it
    coordinates, and the group is live. If the order is stale, broker-0 does not coordinate.
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
    """Planted bug: broker-2 loads the partition without the group, which broker-1 still has."""
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
    """C0 rejoins and gets the member id `new`. Then C0 is fenced with this id, and ends.

    If the next coordinator loads the id `old`, the failover lost the id `new`, and the group need
    not have C0. Without this load no failover lost the id, and the group must have C0.
    Corpus: `static_member_whose_new_id_was_never_stored`.
    """
    for lost in (True, False):
        rows = healed_group()
        rows.member_added(36, "broker-1", "new", instance="i-0")
        if lost:
            rows.group_loaded(37, "broker-2", members=["old", f"{C1}-id"])
            rows.load_completed(37.1, "broker-2", leader_epoch=2)
        rows.committed(40.2, C1, offset=1)
        rows.member_state(
            41, C0, "UNJOINED", before="STABLE", member="new", error="FENCED_INSTANCE_ID"
        )
        if lost:
            rows.group_state(42, "broker-2", "CompletingRebalance", "Stable")

        # broker-2 must remove the silent member `old` by 87 s: 37 s, its session of 45 s, and 5 s.
        # The watch ends before, because a missing removal would be another finding.
        report = check(finish(rows, verifying_s=85 if lost else 101))

        assert (report.outcome is CheckOutcome.PASS) is lost, report.note


def fenced_after_it_was_stable() -> Rows:
    """Return rows of static member C0, which becomes Stable with its new member id at broker-1.

    Its SyncGroup was answered, so the coordinator must have stored the new id.
    """
    rows = healed_group()
    rows.load_completed(8, "broker-1", leader_epoch=1)
    rows.member_added(36, "broker-1", "new", instance="i-0")
    rows.member_state(36.5, C0, "STABLE", member="new")
    return rows


def fence_at_the_next_coordinator(rows: Rows) -> CheckReport:
    """Let broker-2 load the group with the old id and fence C0; return the report."""
    rows.group_loaded(42, "broker-2", members=["old", f"{C1}-id"])
    rows.load_completed(42, "broker-2", leader_epoch=2)
    rows.member_state(42.5, C0, "UNJOINED", member="new", cause="left", error="FENCED_INSTANCE_ID")
    rows.committed(43, C1, offset=1)
    # The coordinator hears of both ids, so that no session ends without a removal.
    for member in ("old", f"{C1}-id"):
        rows.session_restarted(80, "broker-2", member)
    return check(finish(rows, verifying_s=110))


def test_static_member_fenced_after_it_was_stable_is_found() -> None:
    """Planted bug: a coordinator answers with a new member id that it has not stored."""
    report = fence_at_the_next_coordinator(fenced_after_it_was_stable())

    assert report.outcome is CheckOutcome.VIOLATED
    assert report.excused == {}


def test_stored_id_that_is_lost_with_the_last_replica_in_sync_is_excused() -> None:
    """broker-2, the only replica in sync, loses power and leads again, so its data may be lost."""
    rows = fenced_after_it_was_stable()
    change_isr(rows, 41, OFFSETS_0, isr=[2])
    lose_power(rows, 41.1, "broker-2")
    elect(rows, 41.9, OFFSETS_0, leader="broker-2", isr=[2])

    report = fence_at_the_next_coordinator(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.excused == {"member id that was never stored": 1}
    assert f"excused: {C0} stopped" in report.note


def end_application(rows: Rows, time_s: float, error: str) -> None:
    """Let the application of C0 end because its poll threw this error."""
    rows.member_state(
        time_s, C0, "UNJOINED", before="PREPARING_REBALANCE", cause="left", error=error
    )


def test_consumer_stopped_by_an_error_is_found_even_before_the_steady_state() -> None:
    """Without healing no group is judged, but an ended application is a finding at any time."""
    rows = Rows()
    end_application(rows, 3, "INCONSISTENT_GROUP_PROTOCOL")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert finding.summary == (
        f"{C0} of g has stopped for good: INCONSISTENT_GROUP_PROTOCOL ended its application"
    )


def test_group_is_judged_without_a_consumer_that_an_error_has_stopped() -> None:
    """The ended application is the only finding, because the group is live without it."""
    rows = healed_group()
    end_application(rows, 41, "UNKNOWN_SERVER_ERROR")
    rows.committed(42, C1, offset=1)

    assert check(finish(rows, verifying_s=110)).findings_total == 1


def test_consumer_without_an_offset_and_with_reset_none_is_excused() -> None:
    """With `auto.offset.reset=none` a consumer rightly ends if there is no committed offset."""
    rows = healed_group()
    end_application(rows, 41, "NO_OFFSET_FOR_PARTITION")
    rows.committed(42, C1, offset=1)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.PASS
    assert report.excused == {"application that its settings end": 1}
    assert f"excused: {C0} stopped: its settings ask for NO_OFFSET_FOR_PARTITION" in report.note


def test_consumer_that_is_refused_by_a_group_with_room_is_found() -> None:
    """The group has two consumers, which do not exceed group.max.size."""
    rows = healed_group()
    end_application(rows, 41, "GROUP_MAX_SIZE_REACHED")
    rows.committed(42, C1, offset=1)

    assert check(finish(rows, verifying_s=110)).findings_total == 1


@pytest.mark.parametrize("same_assignors", [True, False])
def test_refusal_of_a_consumer_is_excused_by_different_assignors(same_assignors: bool) -> None:
    """A group refuses a consumer only if it has no assignor in common with the other members.

    An assignor is a way to assign partitions.
    """
    rows = healed_group()
    end_application(rows, 41, "INCONSISTENT_GROUP_PROTOCOL")
    rows.committed(42, C1, offset=1)

    report = check(finish(rows, verifying_s=110), same_assignors=same_assignors)

    assert report.findings_total == (1 if same_assignors else 0)
    excused = {} if same_assignors else {"application that its settings end": 1}
    assert report.excused == excused


def test_consumer_that_is_stopped_or_loses_its_generation_is_no_finding() -> None:
    """UNKNOWN_MEMBER_ID makes C0 join again; at 43 s C0 leaves without an error."""
    rows = healed_group()
    rows.member_state(41, C0, "UNJOINED", before="STABLE", cause="error", error="UNKNOWN_MEMBER_ID")
    rows.member_state(42, C0, "STABLE")
    rows.committed(42, C0, offset=1)
    rows.committed(42, C1, offset=1)
    rows.member_state(43, C0, "UNJOINED", before="STABLE", cause="left")

    assert check(finish(rows, verifying_s=110)).findings_total == 0


def short_isr(*, unfenced_s: float) -> CheckReport:
    """Return the report of a group whose offsets partition has one replica in sync from 30 s on.

    broker-2 has the other replica, and is alive since `unfenced_s`. The watch ends at 200 s. A
    living replica must return to the ISR within 120 s (the default of `isr_recovery_us`).
    """
    rows = healed_group()
    elect(rows, 1, OFFSETS_0, leader="broker-1", isr=[1, 2])
    elect(rows, 30, OFFSETS_0, leader="broker-1", isr=[1])
    rows.add(1, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.add(unfenced_s, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-2")
    return check(finish(rows, verifying_s=200))


def test_isr_that_stays_incomplete_although_its_brokers_live_is_no_excuse() -> None:
    """Planted bug: a leader that never expands its ISR.

    From the healing to the end of the watch broker-2 has 160 s to return to the ISR.
    """
    report = short_isr(unfenced_s=35)

    assert report.outcome is CheckOutcome.VIOLATED
    assert report.excused == {}


def test_isr_is_an_excuse_until_its_broker_has_lived_long_enough() -> None:
    """broker-2 has lived for 110 s, and may still be copying the records that it lacks."""
    report = short_isr(unfenced_s=90)

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert report.excused == {"too few replicas in sync": 1}
    assert "excused: g is not live: __consumer_offsets-0 has 1 replica(s) in sync" in report.note


def test_lost_data_of_transactions_does_not_excuse_a_group_that_is_not_stable() -> None:
    """A transaction whose end was lost blocks offsets, but never a rebalance.

    The partition of the transactions loses data: its only replica in sync loses power, and leads
    again. This excuses missing commits in a Stable group, but no group that is rebalancing.
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
    """broker-2, the replaced coordinator, has the id `old` of C0 in memory.

    broker-1 replaces the id by `new`. If C0 then asks broker-2 with the id `new`, broker-2 fences
    it. This excuse holds only while broker-2 still has the group.
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


def test_run_that_never_healed_is_inconclusive() -> None:
    """Groups are judged from the healing on, so no group is judged."""
    rows = Rows()
    rows.stage(1, "stopping")

    assert check(rows).outcome is CheckOutcome.INCONCLUSIVE


def test_killed_member_that_was_not_restarted_is_not_expected() -> None:
    """The group must be live without C1."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.add(40.5, "driver", TraceKind.NODE_KILLED, peer=C1)

    report = check(finish(rows, verifying_s=100))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["members_absent"] == 1


def test_restarted_member_must_become_live() -> None:
    """In the first trace C1 is restarted after the group was live, in the second one before.

    In the second trace the new process never joins.
    """
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    rows.committed(40.3, C1, offset=1)
    rows.group_state(40.35, "broker-1", "Stable", "PreparingRebalance")
    rows.add(40.4, "driver", TraceKind.NODE_KILLED, peer=C1)
    rows.add(40.5, C1, TraceKind.NODE_STARTED, incarnation=1, detail={"role": "consumer"})
    rows.group_state(41, "broker-1", "CompletingRebalance", "Stable", generation=2)

    # The group was live before C1 was killed at 40.4 s, and needs to be live only once.
    assert check(finish(rows, verifying_s=100)).outcome is CheckOutcome.PASS

    rows = healed_group()
    rows.add(40.1, "driver", TraceKind.NODE_KILLED, peer=C1)
    rows.add(40.15, C1, TraceKind.NODE_STARTED, incarnation=1, detail={"role": "consumer"})
    rows.committed(40.2, C0, offset=1)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} is never seen" in report.findings[0].summary


def test_late_member_is_expected_once_it_was_started() -> None:
    """C1 is a late member. In the first trace it never starts; in the second it starts at 38 s."""
    rows = healed_group()
    rows.committed(40.2, C0, offset=1)
    assert check(finish(rows, verifying_s=110), late=(C1,)).outcome is CheckOutcome.PASS

    rows = healed_group()
    rows.add(38, C1, TraceKind.NODE_STARTED, detail={"role": "consumer"})
    rows.committed(40.2, C0, offset=1)
    assert check(finish(rows, verifying_s=110), late=(C1,)).outcome is CheckOutcome.VIOLATED


def test_group_without_live_members_proves_nothing() -> None:
    """Both members are killed after the healing."""
    rows = healed_group()
    for consumer in (C0, C1):
        rows.add(40.1, "driver", TraceKind.NODE_KILLED, peer=consumer)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "all its members are dead" in report.note


def test_member_whose_partition_has_no_leader_need_not_commit() -> None:
    """Both members own t-0. C1 cannot read t-0, so it has nothing to commit."""
    rows = healed_group()
    elect(rows, 30, "t-0", leader="", isr=[])
    rows.committed(40.2, C0, offset=1)

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "t-0 has no leader" in report.note


def test_partition_that_gets_no_leader_although_a_broker_could_lead_is_found() -> None:
    """Planted bug: a controller that elects no leader when a replica in sync returns.

    broker-2, the only replica of t-0 in sync, is fenced at 30 s and unfenced at 41 s.
    """
    rows = healed_group()
    rows.add(30, "controller-100", TraceKind.BROKER_FENCED, peer="broker-2")
    elect(rows, 30, "t-0", leader="", isr=[2])
    rows.committed(40.2, C0, offset=1)
    rows.add(41, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-2")

    report = check(finish(rows, verifying_s=110))

    assert report.outcome is CheckOutcome.VIOLATED


def test_partition_whose_last_replica_in_sync_is_stopping_need_have_no_leader() -> None:
    """A broker in controlled shutdown may not lead, although it is not fenced yet."""
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
    """Without a transaction coordinator the members cannot commit.

    The coordinator's partition has no leader, or two replicas in sync where min.insync.replicas is
    3.
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
    assert check(rows).outcome is CheckOutcome.VIOLATED  # a group without transactions


@pytest.mark.parametrize("lost", [TRANSACTIONS, OFFSETS_0])
def test_transaction_whose_end_was_lost_may_stay_open_for_ever(lost: str) -> None:
    """broker-2, the only replica of the partition `lost` in sync, loses power and leads again.

    Then either the transaction coordinator has forgotten the transaction (TRANSACTIONS), or the
    group's log has lost the marker that ends the transaction (OFFSETS_0).
    """
    rows = healed_group()
    elect(rows, 0, lost, leader="broker-2", isr=[2])
    lose_power(rows, 41, "broker-2")
    elect(rows, 42, lost, leader="broker-2", isr=[2])
    change_isr(rows, 43, lost, isr=[2, 1, 0])
    finish(rows, verifying_s=110)

    report = check(rows, transactions=(TRANSACTIONS,))

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert f"{lost} lost data" in report.note
    assert check(rows).outcome is CheckOutcome.VIOLATED  # a group without transactions


def test_member_that_its_coordinator_does_not_have_is_found() -> None:
    """Planted bug: C1 ignores UNKNOWN_MEMBER_ID and stays STABLE, although generation 2 lacks it.

    In the first trace generation 2 begins after the group was live, so nothing is found. In the
    second trace it begins before the healing.
    """
    rows = healed_group()
    rows.generation_started(40.5, "broker-1", generation=2, members=(f"{C0}-id",))
    rows.group_state(40.6, "broker-1", "CompletingRebalance", "Stable", generation=2)
    rows.committed(41, C0, offset=1)
    rows.committed(41, C1, offset=1)

    # A group that need not commit is live as soon as it is Stable, here at the healing (40 s).
    report = check(finish(rows, verifying_s=110), commits=False)

    assert report.outcome is CheckOutcome.PASS

    rows = Rows()
    for consumer in (C0, C1):
        rows.member_state(1, consumer, "STABLE")
    rows.generation_started(30, "broker-1", generation=2, members=(f"{C0}-id",))
    rows.group_state(30.6, "broker-1", "CompletingRebalance", "Stable", generation=2)
    rows.stage(40, "liveness")

    report = check(finish(rows, verifying_s=110), commits=False)

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} is {C1}-id, whom its coordinator does not know" in report.findings[0].summary


def test_application_that_exceeds_its_own_max_poll_interval_proves_nothing() -> None:
    """With polls 50 s apart and a limit of 15 s, a member must leave and rejoin again and again."""
    rows = finish(healed_group(), verifying_s=110)
    expected = GroupExpectation(
        consumers=(C0, C1),
        offsets_partition=OFFSETS_0,
        commits=True,
        application_us=50_000_000,
        max_poll_interval_us=15_000_000,
    )
    checker = Liveness(CheckContext(groups={"g": expected}, min_insync_replicas=1))
    for row in rows.rows:
        checker.observe(row)

    report = checker.finish()

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert "may take 50 s between two polls, max.poll.interval.ms is 15 s" in report.note


def test_group_that_waits_for_the_session_of_a_dead_member_proves_nothing_yet() -> None:
    """C1 restarts and joins with a new id, and the group waits until the session of `old-id` ends.

    C1 died at 35 s. Its last heartbeat may have arrived up to 3 s later, so the session of 45 s may
    end at 83 s.
    """

    def rejoining(*, verifying_s: float) -> CheckReport:
        """Return the report of this trace, whose watch ends at `verifying_s`."""
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

    waiting = rejoining(verifying_s=61)

    assert waiting.outcome is CheckOutcome.INCONCLUSIVE
    assert "whose session may end at 83 s" in waiting.note
    assert rejoining(verifying_s=90).outcome is CheckOutcome.VIOLATED


def silent_member(*, until_s: float) -> Rows:
    """Return rows of member `silent`, last heard at 10 s, and of `other`, heard until `until_s`."""
    rows = Rows()
    rows.session_restarted(10, "broker-0", "silent")
    rows.session_restarted(until_s - 0.1, "broker-0", "other")
    rows.session_restarted(until_s, "broker-0", "other")
    return rows


def test_silent_member_that_is_not_removed_after_its_session_is_found() -> None:
    """Planted bug: a session without a timer.

    The session of 45 s begins at 10 s, and the checker adds 5 s for a busy broker. So the member
    must be removed by 60 s.
    """
    assert check(silent_member(until_s=59.9)).findings_total == 0

    (finding,) = check(silent_member(until_s=60.2)).findings

    assert finding.summary == (
        "broker-0 keeps silent in g, of whom it has not heard for longer than its session of 45 s"
    )
    assert [row.member for row in finding.evidence] == ["silent"]


@pytest.mark.parametrize(
    "why",
    ["removed", "unloaded", "its broker is dead", "its broker stands still", "its disk is slow"],
)
def test_session_counts_only_while_member_and_broker_are_undisturbed(
    why: str,
) -> None:
    """The member is silent from 10 s to 81 s. At 50 s, before its session ends, `why` happens.

    So the coordinator at broker-0 need not remove the member.
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


@pytest.mark.parametrize("heard", ["JoinGroup", "Heartbeat"])
def test_member_whose_request_is_parked_is_expired_only_after_its_answer(heard: str) -> None:
    """A session does not end in a join phase, because a member may wait for its JoinGroup's answer.

    When the phase ends at 210 s, a new session of 45 s begins. When this session has ended, the
    silent member must be removed.
    """
    rows = Rows()
    rows.group_state(9, "broker-0", "Stable", "PreparingRebalance")
    rows.session_restarted(10, "broker-0", "silent", api=heard)
    for time_s in (100, 200):
        rows.session_restarted(time_s, "broker-0", "other")
    assert check(rows).findings_total == 0

    rows.group_state(210, "broker-0", "PreparingRebalance", "CompletingRebalance")
    rows.group_state(211, "broker-0", "CompletingRebalance", "Stable")
    for time_s in (250, 290, 330):
        rows.session_restarted(time_s, "broker-0", "other")
    assert check(rows).findings_total == 1


def pending_offset(rows: Rows, time_s: float, producer_id: int) -> None:
    """Add an offset of group `g` that a producer's open transaction contains."""
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
    """The finding has the rows of producer 1's open transaction and of the short ISR.

    The transactions of producers 2 and 3 are completed and block nothing.
    """
    rows = healed_group()
    for producer_id, state in ((1, "PrepareCommit"), (2, "CompleteCommit")):
        pending_offset(rows, 20, producer_id=producer_id)
        transaction_state(rows, 21, producer_id=producer_id, state=state)
    pending_offset(rows, 22, producer_id=3)
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
    change_isr(rows, 30, TRANSACTIONS, isr=[0, 1, 2])  # complete, so the finding leaves it out
    for broker in ("broker-0", "broker-1", "broker-2"):
        rows.add(2, "controller-100", TraceKind.BROKER_UNFENCED, peer=broker)

    # At 300 s the short ISR is no excuse any more: its brokers have lived for more than 120 s.
    (finding,) = check(finish(rows, verifying_s=300), transactions=(TRANSACTIONS,)).findings

    # `led_to` has the rows that led to the finding. The first three are BROKER_UNFENCED.
    causes = [(row.kind, row.time_us // 1_000_000) for row in finding.led_to]
    assert causes[3:] == [
        (TraceKind.TXN_COMMIT_PENDING, 20),
        (TraceKind.TRANSACTION_STATE, 21),
        (TraceKind.ISR_CHANGED, 30),
    ]


def test_finding_names_the_waiting_request() -> None:
    """C1 waits for two answers. The Fetch is not named, because it may wait for half a second."""
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
    """Planted bug: a group that no member ever joins.

    The run waited 60 s for the steady state. `bound_s` is the time in which the run must reach the
    steady state; None: a run in real time, which has no such bound.
    """
    rows = Rows()
    rows.add(
        60,
        "driver",
        TraceKind.STEADY_STATE_MISSED,
        detail={"waited_us": 60_000_000, "missing": ["group g is Empty"]},
    )
    checker = Liveness(
        CheckContext(start_bound_us=None if bound_s is None else bound_s * 1_000_000)
    )
    for row in rows.rows:
        checker.observe(row)

    report = checker.finish()

    assert bool(report.findings) == is_found
    if is_found:
        assert "although nothing was broken: group g is Empty" in report.findings[0].summary


@pytest.mark.parametrize("is_live", [True, False])
def test_unreadable_offsets_of_a_live_group_are_found(is_live: bool) -> None:
    """Planted bug: a coordinator that never answers an OffsetFetch.

    If the group does not become live, the only finding is that it is not live.
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
    """Planted bug: a coordinator in which only heartbeats restart sessions.

    Two commits are stored, at 42 s and 43 s. If an OffsetCommit restarted the session at 41 s, then
    commits do restart sessions, and nothing is found.
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


@pytest.mark.parametrize(
    ("member", "removed_s", "is_excused"),
    [
        ("gone-id", 95, True),
        ("gone-id", 70, False),  # 30 s before the end: time enough to settle
        (f"{C1}-id", 95, False),  # C1 lives
    ],
)
def test_group_that_has_just_lost_a_dead_member_has_time_to_settle(
    member: str, removed_s: float, is_excused: bool
) -> None:
    """C1 has no commit after the healing. A late removal of another member may excuse this.

    The removed member must have been dead, and the removal shortly before the end of the watch.
    """
    rows = healed_group()
    rows.member_removed(removed_s, "broker-1", member, "session expiry")
    rows.committed(96, C0, offset=1)

    report = check(finish(rows, verifying_s=100))

    assert report.findings_total == (0 if is_excused else 1)
    assert report.excused == ({"session of a dead member": 1} if is_excused else {})
