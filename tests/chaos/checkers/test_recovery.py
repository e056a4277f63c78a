"""The recovery checker judges whether a cluster recovers after all faults are healed.

In a trace, the faults are healed when the stage "liveness" of the run begins, which is at 40 s in
these tests. From then on each part of the cluster has a certain time to recover, its bound. For
example, the ISR of a partition must be complete 30 s later (`isr_recovery_us`), so at 70 s. A part
that exceeds its bound is a finding.

Each test writes a trace by hand. The first number of a row is its time in seconds, and `end(rows,
71)` ends the run at 71 s. T0 is a partition of an ordinary topic, and TXN is the partition of
`__transaction_state` with the transactions of the consumer. Where a docstring says "Planted bug",
it describes a bug that would leave such a trace.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation, ProducerExpectation
from chaos.checkers.recovery import ANSWER_US, Recovery
from protocol.causes import PREFERRED_LEADER, PREFERRED_LEADER_REQUESTED, DeletionCause
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

T0 = "t-0"
TXN = "__transaction_state-0"


def checker(
    *,
    balance_s: int | None = None,
    recovery_s: int = 120,
    with_producer: bool = False,
    min_insync_replicas: int = 1,
) -> Recovery:
    """Return the checker of a run.

    balance_s: interval at which the controller moves leaderships back to the preferred leaders;
        None: it never moves them.
    recovery_s: longest time that the run waits for the cluster to recover.
    with_producer: True if the run has a producer of the topic t, with a record each second.
    """
    producer = ProducerExpectation(
        name="producer-0", topic="t", period_us=1_000_000, request_timeout_us=5_000_000
    )
    return Recovery(
        CheckContext(
            groups={
                "g": GroupExpectation(
                    consumers=("consumer-g-0",),
                    offsets_partition=OFFSETS_0,
                    commits=True,
                    transaction_partitions=(TXN,),
                )
            },
            isr_recovery_us=30_000_000,
            leader_balance_us=None if balance_s is None else balance_s * 1_000_000,
            recovery_timeout_us=recovery_s * 1_000_000,
            producers=(producer,) if with_producer else (),
            transaction_timeout_us=10_000_000,
            transaction_cleanup_us=1_000_000,
            min_insync_replicas=min_insync_replicas,
        )
    )


def check(rows: Rows, recovery: Recovery | None = None) -> CheckReport:
    """Return the report of `recovery`, by default `checker()`, about the rows."""
    recovery = checker() if recovery is None else recovery
    for row in rows.rows:
        recovery.observe(row)
    return recovery.finish()


def elected(
    rows: Rows,
    time_s: float,
    partition: str,
    leader: int | None,
    isr: list[int],
    epoch: int = 0,
    *,
    reason: str = "",
) -> None:
    """Let the controller elect the broker with the id `leader`. None: there is no leader."""
    rows.add(
        time_s,
        "controller-0",
        TraceKind.LEADER_ELECTED,
        partition=partition,
        peer="" if leader is None else f"broker-{leader}",
        leader_epoch=epoch,
        detail={"isr": isr, "reason": reason},
    )


def change_isr(rows: Rows, time_s: float, partition: str, brokers: list[int]) -> None:
    """Let the brokers with these ids be the ISR of the partition from now on."""
    rows.add(
        time_s, "controller-0", TraceKind.ISR_CHANGED, partition=partition, detail={"isr": brokers}
    )


def cluster() -> Rows:
    """Return rows of three unfenced brokers, with t-0 on all of them, led by broker-0."""
    rows = Rows()
    for broker in range(3):
        rows.add(0.1, "controller-0", TraceKind.BROKER_UNFENCED, peer=f"broker-{broker}")
    elected(rows, 1, T0, leader=0, isr=[0, 1, 2])
    return rows


def end(rows: Rows, time_s: float) -> Rows:
    """Add the end of the run, and return the rows."""
    rows.stage(time_s, "verifying")
    rows.stage(time_s, "stopping")
    return rows


def test_isr_that_is_complete_in_time_passes() -> None:
    """The ISR is complete at 43 s. The report says that this took 3 s from the healing on."""
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0, 1])
    rows.stage(40, "liveness")
    change_isr(rows, 43, T0, brokers=[0, 1, 2])

    report = check(end(rows, 50))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["slowest_isr_after_healing_us"] == 3_000_000


def test_replica_that_stays_out_of_the_isr_is_found() -> None:
    """Planted bug: the leader never asks the controller to add broker-2 to the ISR again."""
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0, 1])
    rows.stage(40, "liveness")

    report = check(end(rows, 71))

    assert report.outcome is CheckOutcome.VIOLATED
    assert "t-0 is not whole: broker-2 could be in sync, and is not" in report.findings[0].summary
    assert report.findings[0].partition == T0


def test_replica_that_returns_too_late_is_found() -> None:
    """The ISR is complete at 72 s, 2 s after the end of the bound."""
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0, 1])
    rows.stage(40, "liveness")
    change_isr(rows, 72, T0, brokers=[0, 1, 2])

    assert check(end(rows, 73)).outcome is CheckOutcome.VIOLATED


def test_run_that_ends_within_the_bound_judges_nothing() -> None:
    """The run ends at 50 s, but the ISR may need until 70 s."""
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0, 1])
    rows.stage(40, "liveness")

    report = check(end(rows, 50))

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.seen["not_watched"] == 1


def test_replica_of_a_fenced_broker_is_not_expected() -> None:
    """broker-2 stays fenced after the healing, so its replica need not return."""
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0, 1])
    rows.add(20, "controller-0", TraceKind.BROKER_FENCED, peer="broker-2")
    rows.stage(40, "liveness")

    assert check(end(rows, 200)).outcome is CheckOutcome.NOTHING_SEEN


def test_bound_counts_from_the_unfencing_of_the_replica() -> None:
    """broker-2 is unfenced at 60 s. From then on its replica has 30 s, so until 90 s."""
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0, 1])
    rows.add(20, "controller-0", TraceKind.BROKER_FENCED, peer="broker-2")
    rows.stage(40, "liveness")
    rows.add(60, "controller-0", TraceKind.BROKER_UNFENCED, peer="broker-2")

    recovery = checker()
    for row in rows.rows:
        recovery.observe(row)
    # At the end of a run, the run waits for each partition that `unsettled` names. After 90 s it
    # need not wait for t-0 any longer.
    assert recovery.unsettled(89_000_000) == ("t-0 is not whole",)
    assert recovery.unsettled(91_000_000) == ()
    # A run that ends before 90 s cannot be judged.
    assert check(end(rows, 89)).outcome is CheckOutcome.NOTHING_SEEN


def test_partition_without_a_leader_is_found() -> None:
    """Planted bug: the controller elects no leader, although broker-1 is in the ISR, and up."""
    rows = cluster()
    elected(rows, 20, T0, leader=None, isr=[1], epoch=1)
    rows.stage(40, "liveness")

    report = check(end(rows, 71))

    assert "it has no leader, although broker-1 could lead" in report.findings[0].summary


@pytest.mark.parametrize(
    ("recovery_s", "outcome"), [(120, CheckOutcome.VIOLATED), (30, CheckOutcome.NOTHING_SEEN)]
)
def test_preferred_leader_that_does_not_return_is_found(
    recovery_s: int, outcome: CheckOutcome
) -> None:
    """Planted bug: the controller does not move leaderships back to the preferred leaders.

    The controller should do this every 5 s. The bound is 45 s: twice this interval, and ANSWER_US
    (35 s), which is the longest time until a request is answered. A run that waits only 30 s for
    the cluster to recover cannot judge this.
    """
    rows = cluster()
    elected(rows, 20, T0, leader=1, isr=[0, 1, 2], epoch=1)
    rows.stage(40, "liveness")

    report = check(end(rows, 90), checker(balance_s=5, recovery_s=recovery_s))

    assert report.outcome is outcome
    if report.findings:
        assert "led by broker-1, and its preferred leader broker-0" in report.findings[0].summary


def test_preferred_leader_that_returns_passes() -> None:
    """broker-0, the first replica of t-0, leads again at 44 s."""
    rows = cluster()
    elected(rows, 20, T0, leader=1, isr=[0, 1, 2], epoch=1)
    rows.stage(40, "liveness")
    elected(rows, 44, T0, leader=0, isr=[0, 1, 2], epoch=2)

    assert check(end(rows, 90), checker(balance_s=5)).outcome is CheckOutcome.PASS


def test_leader_that_an_administrator_put_first_need_not_go_back() -> None:
    """The fault `leadership_move` makes broker-1 the first replica of t-0, its preferred leader.

    So the leadership need not go back to broker-0, which was the first replica before.
    """
    rows = cluster()
    rows.fault(15, "broker-0", fault="leadership_move", partitions=[T0], to=["broker-1"])
    elected(rows, 20, T0, leader=1, isr=[0, 1, 2], epoch=1)
    rows.stage(40, "liveness")

    assert not check(end(rows, 90), checker(balance_s=5, recovery_s=120)).findings


def test_order_of_a_move_may_arrive_after_another_preferred_election() -> None:
    """An administrator orders at 15 s that broker-1 becomes the preferred leader.

    The order reaches the controller only at 25 s. Before that, at 20 s, the controller has elected
    broker-0 as the preferred leader. After 25 s it need not elect broker-0 again.
    """
    rows = cluster()
    rows.fault(15, "broker-0", fault="leadership_move", partitions=[T0], to=["broker-1"])
    elected(rows, 18, T0, leader=2, isr=[0, 1, 2], epoch=1)
    elected(rows, 20, T0, leader=0, isr=[0, 1, 2], epoch=2, reason=PREFERRED_LEADER)
    elected(rows, 25, T0, leader=1, isr=[0, 1, 2], epoch=3, reason=PREFERRED_LEADER_REQUESTED)
    rows.stage(40, "liveness")

    assert not check(end(rows, 90), checker(balance_s=5, recovery_s=120)).findings


# -- transactions --
#
# A transaction is Ongoing until its coordinator decides its end: PrepareCommit or PrepareAbort. The
# coordinator then writes the decision to all partitions of the transaction, in records that are
# called markers. When all partitions have their markers, the transaction is complete:
# CompleteCommit or CompleteAbort.


def transaction(rows: Rows, time_s: float, state: str, *, before: str = "Empty") -> None:
    """Let the consumer's transaction enter `state`."""
    rows.add(
        time_s,
        "broker-1",
        TraceKind.TRANSACTION_STATE,
        partition=TXN,
        detail={
            "from": before,
            "to": state,
            "transactional_id": "consumer-g-0",
            "producer_id": 7,
            "producer_epoch": 0,
        },
    )


MARKERS_S = 2 * ANSWER_US / 1e6
"""The longest time until the markers are written: 70 s.

This may need two requests of ANSWER_US each.
"""
TIMEOUT_S = 10 + 2 * 1
"""The longest time until an open transaction is aborted: 12 s.

The transaction times out after 10 s. The coordinator looks for such transactions every 1 s. If
another broker becomes coordinator, it begins this interval of 1 s anew.
"""


@pytest.mark.parametrize(
    ("state", "bound_s"), [("Ongoing", TIMEOUT_S + MARKERS_S), ("PrepareCommit", MARKERS_S)]
)
def test_transaction_that_never_ends_is_found(state: str, bound_s: float) -> None:
    """Planted bug: a timed-out transaction is never aborted, or its markers are never written."""
    rows = cluster()
    transaction(rows, 20, state)
    rows.stage(40, "liveness")

    # The run ends 1 s after the end of the bound.
    assert check(end(rows, 40 + bound_s + 1)).outcome is CheckOutcome.VIOLATED


def test_transaction_of_a_partition_without_its_last_replica_is_not_awaited() -> None:
    """broker-1 had the only replica of TXN that was in sync. broker-1 is lost for good.

    So the transaction has no coordinator, and no broker can end it.
    """
    rows = cluster()
    transaction(rows, 20, "Ongoing")
    rows.add(30, "controller-0", TraceKind.BROKER_FENCED, peer="broker-1")
    elected(rows, 30, TXN, leader=None, isr=[1], epoch=1)
    rows.stage(40, "liveness")

    report = check(end(rows, 300))

    # The partition without a leader is a finding of its own.
    assert not [finding for finding in report.findings if "transaction" in finding.summary]


@pytest.mark.parametrize(
    ("isr_before", "leader", "isr", "is_found"),
    [
        # Only broker-1 was in sync. So OFFSETS_0 has no leader, and the transaction cannot end.
        ([1], None, [1], False),
        # One replica is left, which is too few for a record. So the transaction cannot end.
        ([1, 0], 0, [0], False),
        # Two replicas are left, so the transaction must end.
        ([1, 0, 2], 0, [0, 2], True),
    ],
)
def test_decided_transaction_waits_for_a_partition_that_takes_its_markers(
    isr_before: list[int], leader: int | None, isr: list[int], is_found: bool
) -> None:
    """The transaction is decided, and its coordinator has to write a marker to OFFSETS_0.

    OFFSETS_0 takes records only if two replicas are in sync. At 30 s its leader, broker-1, is lost
    for good. From then on `leader` and `isr` are those of OFFSETS_0.
    """
    rows = cluster()
    elected(rows, 15, OFFSETS_0, leader=1, isr=isr_before)
    transaction(rows, 20, "PrepareCommit")
    rows.add(30, "controller-0", TraceKind.BROKER_FENCED, peer="broker-1")
    elected(rows, 30, OFFSETS_0, leader=leader, isr=isr, epoch=1)
    rows.stage(40, "liveness")

    report = check(end(rows, 300), checker(min_insync_replicas=2))

    transactions = [finding for finding in report.findings if "transaction" in finding.summary]
    assert bool(transactions) is is_found


def test_transaction_that_ends_is_no_longer_awaited() -> None:
    """The transaction is aborted at 50 s, and is complete at 51 s."""
    rows = cluster()
    transaction(rows, 20, "Ongoing")
    rows.stage(40, "liveness")
    transaction(rows, 50, "PrepareAbort", before="Ongoing")
    transaction(rows, 51, "CompleteAbort", before="PrepareAbort")

    assert not check(end(rows, 300)).findings


def test_transaction_that_began_after_healing_is_not_awaited() -> None:
    """Live members begin transactions all the time.

    So the run does not wait for new transactions.
    """
    rows = cluster()
    rows.stage(40, "liveness")
    transaction(rows, 50, "Ongoing")
    recovery = checker()
    for row in rows.rows:
        recovery.observe(row)

    assert recovery.unsettled(51_000_000) == ()


def test_load_decides_which_transactions_are_open() -> None:
    """A new coordinator loads the log of transactions, and finds none that is open.

    So the transaction has ended, although no row shows its end. The old coordinator may have logged
    the end of the transaction, and died before it could write the row.
    """
    rows = cluster()
    transaction(rows, 20, "Ongoing")
    rows.add(
        30,
        "broker-2",
        TraceKind.TRANSACTIONS_LOADED,
        partition=TXN,
        detail={"records": 1, "transactional_ids": 1},
    )
    rows.stage(40, "liveness")

    assert not check(end(rows, 300)).findings


@pytest.mark.parametrize(("late_epoch", "is_found"), [(1, False), (3, True)])
def test_load_of_an_older_leader_epoch_opens_no_transaction(
    late_epoch: int, is_found: bool
) -> None:
    """broker-2 leads TXN in epoch 2, loads it, and ends the transaction.

    At 35 s broker-1 completes a load of TXN, in which it finds the transaction open.

    - If this is a load of epoch 1, broker-1 was paused, and is an old leader. Nothing is wrong.
    - If this is a load of epoch 3, broker-1 is the new coordinator, which must end the transaction.
    """
    rows = cluster()
    for time_s, broker, epoch in ((30, "broker-2", 2), (35, "broker-1", late_epoch)):
        rows.add(
            time_s,
            broker,
            TraceKind.TRANSACTIONS_LOADED,
            partition=TXN,
            leader_epoch=epoch,
            detail={"records": 1, "transactional_ids": 1, "open": {"consumer-g-0": "Ongoing"}},
        )
        if broker == "broker-2":
            transaction(rows, 32, "CompleteAbort", before="PrepareAbort")
    rows.stage(40, "liveness")

    findings = check(end(rows, 300)).findings

    assert bool(findings) == is_found


@pytest.mark.parametrize(("late_epoch", "is_found"), [(1, False), (3, True)])
def test_load_of_an_older_leader_epoch_makes_no_offset_unstable(
    late_epoch: int, is_found: bool
) -> None:
    """As in the test above, but the brokers load the group `g` instead of the transaction.

    In the group they find an unstable offset, which waits for the marker of the transaction.
    broker-2 gets the marker. The load of broker-1 counts only if it is that of a newer epoch.
    """
    rows = cluster()
    transaction(rows, 19, "Ongoing")
    transaction(rows, 20, "CompleteAbort", before="PrepareAbort")
    for time_s, broker, epoch in ((30, "broker-2", 2), (35, "broker-1", late_epoch)):
        rows.load_started(time_s, broker, leader_epoch=epoch)
        # 7 is the id of the producer whose offset is unstable.
        loaded: dict[str, object] = {"state": "Empty", "members": [], "pending": [7]}
        rows.add(time_s + 1, broker, TraceKind.GROUP_LOADED, group="g", detail=loaded)
        if broker == "broker-2":
            rows.add(
                32,
                broker,
                TraceKind.TRANSACTION_COMPLETED,
                group="g",
                detail={"producer_id": 7, "committed": False, "offsets": 0},
            )
    rows.stage(40, "liveness")

    findings = check(end(rows, 300)).findings

    assert bool(findings) == is_found


def test_load_that_a_newer_load_has_overtaken_makes_no_offset_unstable() -> None:
    """broker-1 is replaced by broker-2 during its load, and stops the load early.

    The marker of the transaction comes later in the log. broker-2 reads the marker, and so finds no
    unstable offset. The load of broker-1 began first, but it is not the newest any more.
    """
    rows = cluster()
    transaction(rows, 19, "Ongoing")
    transaction(rows, 20, "CompleteAbort", before="PrepareAbort")
    rows.load_started(30, "broker-1", leader_epoch=2)
    rows.load_started(31, "broker-2", leader_epoch=3)
    cut_short: dict[str, object] = {"state": "Empty", "members": [], "pending": [7]}
    rows.add(32, "broker-1", TraceKind.GROUP_LOADED, group="g", detail=cut_short)
    whole: dict[str, object] = {"state": "Empty", "members": []}
    rows.add(33, "broker-2", TraceKind.GROUP_LOADED, group="g", detail=whole)
    rows.stage(40, "liveness")

    assert not check(end(rows, 300)).findings


def test_transaction_that_a_load_found_prepared_is_found() -> None:
    """Planted bug: a new coordinator loads a decided transaction, and never writes its markers."""
    rows = cluster()
    rows.add(
        30,
        "broker-2",
        TraceKind.TRANSACTIONS_LOADED,
        partition=TXN,
        detail={"records": 1, "transactional_ids": 1, "open": {"consumer-g-0": "PrepareCommit"}},
    )
    rows.stage(40, "liveness")

    report = check(end(rows, 120))

    assert "its transaction is PrepareCommit" in report.findings[0].summary


def add_offset_to_transaction(rows: Rows, time_s: float) -> None:
    """Let the coordinator of group `g` take an offset of the open transaction of producer 7.

    Until a marker ends the transaction, the offset is unstable, which means that no consumer may
    read the offset.
    """
    rows.add(
        time_s,
        "broker-0",
        TraceKind.TXN_COMMIT_PENDING,
        group="g",
        partition=T0,
        offset=3,
        detail={"producer_id": 7},
    )


def test_offset_that_stays_unstable_is_found() -> None:
    """Planted bug: the transaction is complete, but its marker has not reached the group.

    The marker should have reached the group MARKERS_S after the healing. The run ends 1 s later.
    """
    rows = cluster()
    transaction(rows, 19, "Ongoing")
    add_offset_to_transaction(rows, 20)
    transaction(rows, 21, "PrepareCommit", before="Ongoing")
    transaction(rows, 22, "CompleteCommit", before="PrepareCommit")
    rows.stage(40, "liveness")

    report = check(end(rows, 40 + MARKERS_S + 1))

    assert "g has offsets of producer 7 that are not stable" in report.findings[0].summary
    assert report.findings[0].group == "g"


@pytest.mark.parametrize(
    ("cause", "is_found"), [(DeletionCause.DELETED, False), ("no member is left", True)]
)
def test_unstable_offset_of_a_deleted_group_is_not_awaited(cause: str, *, is_found: bool) -> None:
    """A group that is deleted loses its offsets, so they need not become stable.

    If the group is Dead for another reason, they must become stable.
    """
    rows = cluster()
    transaction(rows, 19, "Ongoing")
    add_offset_to_transaction(rows, 20)
    rows.group_state(21, "broker-0", "Empty", "Dead", cause=cause)
    transaction(rows, 22, "CompleteAbort", before="Ongoing")
    rows.stage(40, "liveness")

    assert bool(check(end(rows, 40 + MARKERS_S + 1)).findings) is is_found


def test_offset_that_a_load_found_stable_is_not_awaited() -> None:
    """A new coordinator, broker-1, loads the group from its log, which has the marker already.

    So the offset is stable, although no row shows the marker.
    """
    rows = cluster()
    add_offset_to_transaction(rows, 20)
    transaction(rows, 21, "CompleteCommit", before="PrepareCommit")
    rows.load_started(30, "broker-1", leader_epoch=2)
    rows.group_loaded(30.1, "broker-1")
    rows.stage(40, "liveness")

    assert not check(end(rows, 300)).findings


def test_run_that_never_heals_judges_nothing() -> None:
    """The checker judges only what happens after the healing.

    This run is interrupted before the faults are healed.
    """
    rows = cluster()
    change_isr(rows, 20, T0, brokers=[0])

    report = check(end(rows, 300))

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.note == "the run was over before it could be judged after healing"


@pytest.mark.parametrize(
    ("is_acknowledged", "is_whole", "is_found"),
    [(False, True, True), (True, True, False), (False, False, False)],
)
def test_producer_without_acknowledged_records_is_found(
    is_acknowledged: bool, is_whole: bool, is_found: bool
) -> None:
    """Planted bug: after a fault the producer never sends again.

    The producer is excused while a replica of its topic is not in sync (`is_whole` is False).
    """
    rows = cluster()
    rows.stage(40, "liveness")
    if not is_whole:
        rows.add(41, "controller-0", TraceKind.BROKER_FENCED, peer="broker-2")
        change_isr(rows, 41, T0, brokers=[0, 1])
    if is_acknowledged:
        rows.add(
            45,
            "producer-0",
            TraceKind.RECORDS_PRODUCED,
            partition=T0,
            offset=1,
            detail={"count": 1},
        )

    # The bound is the time between two records, two requests of 5 s, and SLACK_US of the checker
    # (10 s).
    bound_s = 1 + 2 * 5 + 10
    report = check(end(rows, 40 + bound_s + 1), checker(with_producer=True))

    assert bool(report.findings) == is_found
    if is_found:
        assert "producer-0 has had no record of t acknowledged" in report.findings[0].summary
