"""Offsets of a transaction count exactly if the transaction was decided as a commit.

A producer commits offsets of its group in a transaction. The offsets wait for the end of the
transaction (the function `pending` adds the row of such an offset). The transaction coordinator
decides that the transaction is committed or aborted (`decided`), and sends a marker to the group's
coordinator. The marker is the record that ends the transaction in the group (`completed`). From
then on the offsets count if the transaction was committed. If it was aborted, they are forgotten.
The checker compares each end in a group with the decision to which the end belongs.

The group's coordinator is broker-0, the transaction coordinator is broker-2, and the producer has
the id 0. When a coordinator takes over, it loads its groups or transactions, that is, reads them
from the log. A load of the group may delay a marker until the next transaction is decided. Such an
end is called "late". A late end may also end the next transaction in the group, and the checker
excuses this. "Planted bug" in a docstring names a bug that would lead to the situation.

The first number of each row is its time in seconds. Many traces end with `rows.fetched(12.1,
"consumer-g-0", offset=1)`: the coordinator answers offset 1, so an acknowledged commit of offset 2
is lost.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.durable_commits import LATE_END, DurableCommits
from chaos.checkers.evidence.transactions.forgotten_commits import FORGOTTEN
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

# The states of a transaction whose end is decided, but not yet known to the group.
COMMIT, ABORT = "PrepareCommit", "PrepareAbort"


def check(rows: Rows, clock_error_us: int = 0) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report."""
    group = GroupExpectation(consumers=("consumer-g-0",), offsets_partition=OFFSETS_0, commits=True)
    checker = DurableCommits(CheckContext(groups={"g": group}, clock_error_us=clock_error_us))
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def pending(
    rows: Rows,
    time_s: float,
    *,
    append_id: int | None = None,
    node: str = "broker-0",
    incarnation: int = 0,
) -> None:
    """Add the row of an offset of t-0 that waits for the end of producer 0's transaction.

    `append_id` is the id of the append that wrote the offset. Most tests do not need this id.
    """
    rows.add(
        time_s,
        node,
        TraceKind.TXN_COMMIT_PENDING,
        incarnation=incarnation,
        group="g",
        member="consumer-g-0-id",
        partition="t-0",
        offset=1,
        correlation_id=append_id,
        detail={"producer_id": 0},
    )


def decided(rows: Rows, time_s: float, to: str, producer_id: int = 0) -> None:
    """Let the transaction coordinator, broker-2, change a transaction to the state `to`.

    The states COMMIT and ABORT are decisions. CompleteCommit and CompleteAbort mean that all
    markers are written.
    """
    rows.add(
        time_s,
        "broker-2",
        TraceKind.TRANSACTION_STATE,
        partition="__transaction_state-0",
        detail={
            "transactional_id": "consumer-g-0",
            "producer_id": producer_id,
            "from": "Ongoing",
            "to": to,
        },
    )


def loaded_open(rows: Rows, time_s: float, state: str, node: str = "broker-2") -> None:
    """Let `node` load the transactions, and find the one of producer 0 in the state `state`."""
    rows.add(
        time_s,
        node,
        TraceKind.TRANSACTIONS_LOADED,
        partition="__transaction_state-0",
        detail={"records": 1, "transactional_ids": 1, "open": {"consumer-g-0": state}},
    )


def completed(
    rows: Rows,
    time_s: float,
    *,
    committed: bool,
    node: str = "broker-0",
    offsets: int | None = None,
) -> None:
    """Add the end of producer 0's transaction in the group, whose coordinator is `node`.

    `offsets` is the number of offsets that count from now on. By default it is one for a commit,
    and none for an abort.
    """
    counted = int(committed) if offsets is None else offsets
    rows.add(
        time_s,
        node,
        TraceKind.TRANSACTION_COMPLETED,
        group="g",
        detail={"producer_id": 0, "committed": committed, "offsets": counted},
    )


def elected(rows: Rows, time_s: float) -> None:
    """Elect broker-2, the only replica in sync, for the log of transactions."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition="__transaction_state-0",
        peer="broker-2",
        detail={"isr": [2]},
    )


@pytest.mark.parametrize(("to", "committed"), [(COMMIT, True), (ABORT, False)])
def test_end_that_follows_the_decision_passes_also_at_the_next_coordinator(
    to: str, *, committed: bool
) -> None:
    """The group's coordinator moves to broker-1 after the decision, so broker-1 gets the marker."""
    rows = Rows()
    pending(rows, 1)
    decided(rows, 2, to)
    completed(rows, 3, committed=committed, node="broker-1")

    assert check(rows).findings_total == 0


@pytest.mark.parametrize(
    ("to", "committed", "summary"),
    [
        (ABORT, True, "broker-0 counted the offsets of a transaction of producer 0, which was "),
        (COMMIT, False, "broker-0 forgot the offsets of a transaction of producer 0, which was "),
    ],
)
def test_end_against_the_decision_is_found(to: str, summary: str, *, committed: bool) -> None:
    """Planted bug: the group's coordinator commits at the marker of an abort, and vice versa."""
    rows = Rows()
    # The previous transaction ends as it was decided, which is the opposite of `to`.
    pending(rows, 0.1)
    decided(rows, 0.2, COMMIT if to == ABORT else ABORT)
    completed(rows, 0.3, committed=committed)
    # The end of this transaction is against its decision.
    pending(rows, 1)
    decided(rows, 2, to)
    completed(rows, 3, committed=committed)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert summary in finding.summary
    assert [row.kind for row in finding.evidence] == [
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_STATE,
        TraceKind.TRANSACTION_COMPLETED,
    ]


def test_offsets_that_count_after_an_abort_are_found() -> None:
    """Planted bug: the marker of an abort commits the pending offset."""
    rows = Rows()
    pending(rows, 1)
    decided(rows, 2, ABORT)
    completed(rows, 3, committed=False, offsets=1)

    assert check(rows).findings_total == 1


def test_marker_overtaken_by_the_next_transaction_is_judged_by_its_own_decision() -> None:
    """As in Kafka, the first marker may have to wait until broker-0 has loaded its groups.

    While the first marker waits, the next transaction is decided. Markers keep their order, so the
    first end belongs to the first decision.
    """
    rows = Rows()
    pending(rows, 1)
    decided(rows, 2, COMMIT)
    pending(rows, 3)
    decided(rows, 4, ABORT)
    completed(rows, 5, committed=True)
    completed(rows, 5.1, committed=False)

    assert check(rows).findings_total == 0


def test_decision_without_a_row_proves_nothing() -> None:
    """A coordinator may die after it has appended a decision, and before it writes the row.

    The next coordinator loads the decision and writes the markers. So the end in the group may be
    right, although the trace shows no decision on this transaction. The only decision in this trace
    is about a transaction of producer 7.
    """
    rows = Rows()
    pending(rows, 1)
    decided(rows, 2, ABORT, producer_id=7)
    completed(rows, 3, committed=True)

    assert check(rows).findings_total == 0


@pytest.mark.parametrize(("clock_error_us", "findings"), [(0, 1), (2_000_000, 0)])
def test_decision_with_a_later_clock_is_waited_for(clock_error_us: int, findings: int) -> None:
    """The transaction ends in the group as a commit, at 2 s.

    This is against the decision to abort at 1.5 s. But if clocks differ by up to 2 s, the end may
    belong to the decision to commit, whose row has the time 3 s.
    """
    rows = Rows()
    pending(rows, 1)
    decided(rows, 1.5, ABORT)
    completed(rows, 2, committed=True)
    decided(rows, 3, COMMIT)

    assert check(rows, clock_error_us).findings_total == findings


@pytest.mark.parametrize(("completed_s", "findings"), [(None, 1), (2.5, 0)])
def test_marker_after_a_completed_transaction_belongs_to_the_next_one(
    completed_s: float | None, findings: int
) -> None:
    """A commit was decided at 2 s, and in the group a transaction ends as an abort at 60 s.

    - If the transaction coordinator completed the commit at 2.5 s, the abort must be the end of a
      later transaction. The end of the committed transaction has no row, because the group was
      loaded from a log that had the marker already.
    - If the commit was not completed, the abort is the end of this transaction, and so against the
      decision.
    """
    rows = Rows()
    pending(rows, 1)
    decided(rows, 2, COMMIT)
    if completed_s is not None:
        decided(rows, completed_s, "CompleteCommit")
    completed(rows, 60, committed=False)

    assert check(rows).findings_total == findings


@pytest.mark.parametrize(("cause", "findings"), [("power loss", 0), (None, 1)])
def test_decision_lost_with_the_last_replica_in_sync_is_not_binding(
    cause: str | None, findings: int
) -> None:
    """broker-2, the only replica in sync, loses the decision to abort in a power loss.

    So the transaction may be decided once more, as a commit. If broker-2 is killed without a power
    loss (`cause` is None), nothing is lost, and the commit is a finding.
    """
    rows = Rows()
    elected(rows, 0.1)
    pending(rows, 1)
    decided(rows, 2, ABORT)
    rows.add(3, "driver", TraceKind.NODE_KILLED, peer="broker-2", cause=cause)
    elected(rows, 9)
    completed(rows, 10, committed=True)

    assert check(rows).findings_total == findings


def late_end(rows: Rows, *, loaded_s: float) -> Rows:
    """Add the rows of two transactions, and return all rows.

    The first transaction is aborted, and the second transaction is committed. The late marker of
    the first transaction ends the second transaction in the group, as an abort. The group's load is
    completed at `loaded_s`. The load can have delayed the marker only if it comes after the first
    decision, at 10 s.
    """
    decided(rows, 10, ABORT)
    decided(rows, 10.1, "CompleteAbort")
    rows.load_completed(loaded_s, "broker-0", leader_epoch=3)
    pending(rows, 11)
    decided(rows, 11.1, COMMIT)
    completed(rows, 11.2, committed=False)
    return rows


def test_end_behind_a_load_is_excused_as_that_of_the_previous_transaction() -> None:
    """In Kafka the same thread ends transactions in groups and loads groups.

    So an end has to wait while the thread loads. Here the end at 11.2 s belongs to the transaction
    that was aborted at 10 s, and not to the one that was committed at 11.1 s.
    """
    report = check(late_end(Rows(), loaded_s=10.5))

    assert not report.findings
    assert report.excused == {"end of a transaction that came behind a load": 1}


def test_late_end_may_follow_the_completion_of_the_next_transaction() -> None:
    """At 18 s the late abort of the first transaction removes the offsets of the second one.

    The second transaction was completed as a commit at 11.2 s. Its own marker comes later, and will
    find no offsets in the group.
    """
    rows = Rows()
    decided(rows, 10, ABORT)
    decided(rows, 10.1, "CompleteAbort")
    pending(rows, 11)
    decided(rows, 11.1, COMMIT)
    decided(rows, 11.2, "CompleteCommit")
    rows.load_completed(18, "broker-0", leader_epoch=3)
    completed(rows, 18, committed=False)

    report = check(rows)

    assert report.excused == {"end of a transaction that came behind a load": 1}


def test_late_end_is_also_excused_if_a_later_decision_fits() -> None:
    """The late abort, at 11.3 s, removes the offsets that the second transaction committed.

    The third transaction was aborted before the load had finished. Its decision, an abort, fits the
    late end, too. But ends keep the order of the transactions, and no end of the second transaction
    has come yet, which would be a commit. So the late end belongs to the first transaction.
    """
    rows = Rows()
    decided(rows, 10, ABORT)
    pending(rows, 11)
    decided(rows, 11.1, COMMIT)
    decided(rows, 11.2, ABORT)
    rows.load_completed(11.3, "broker-0", leader_epoch=3)
    completed(rows, 11.3, committed=False)

    assert check(rows).excused == {"end of a transaction that came behind a load": 1}


@pytest.mark.parametrize(
    ("state", "node", "loaded_s", "findings"),
    [
        pytest.param(ABORT, "broker-2", 11.2, 0, id="excused"),
        pytest.param(COMMIT, "broker-2", 11.2, 1, id="another decision is loaded"),
        pytest.param("Ongoing", "broker-2", 11.2, 1, id="no decision is loaded"),
        pytest.param(ABORT, "broker-1", 11.2, 1, id="another broker completes it"),
        pytest.param(ABORT, "broker-2", 9.9, 1, id="the group's load is too early"),
    ],
)
def test_late_end_may_belong_to_a_decision_that_only_a_load_shows(
    state: str, node: str, loaded_s: float, findings: int
) -> None:
    """The coordinator that decided the first transaction died before it wrote the row.

    The next coordinator, broker-2, loads the decision at 10 s, and completes the transaction. There
    is no excuse in three cases:

    - The state that was loaded at 10 s is not the decision to abort.
    - The broker that loaded the state at 10 s (broker-1) is not the broker that completes the
      transaction (broker-2).
    - The group itself was loaded for the last time, at `loaded_s`, before 10 s.
    """
    rows = Rows()
    loaded_open(rows, 10, state, node)
    decided(rows, 10.1, "CompleteAbort")
    pending(rows, 11)
    decided(rows, 11.1, COMMIT)
    rows.load_completed(loaded_s, "broker-0", leader_epoch=3)
    completed(rows, 11.2, committed=False)

    report = check(rows)

    assert report.findings_total == findings
    assert report.excused == ({} if findings else {LATE_END: 1})


def test_loaded_decision_excuses_no_end_of_a_later_transaction() -> None:
    """The loaded decision, at 10 s, is about the first of three transactions.

    The third transaction was decided as a commit, but the end at 12.2 s is an abort. The load at
    12 s can have delayed only the end of the second transaction. But the second transaction was
    committed, so its end cannot be an abort.
    """
    rows = Rows()
    loaded_open(rows, 10, ABORT)
    decided(rows, 10.1, "CompleteAbort")
    decided(rows, 11, COMMIT)
    decided(rows, 11.1, "CompleteCommit")
    rows.load_completed(12, "broker-0", leader_epoch=3)
    pending(rows, 12.1)
    decided(rows, 12.15, COMMIT)
    completed(rows, 12.2, committed=False)

    assert check(rows).findings_total == 1


@pytest.mark.parametrize(("is_loaded", "findings"), [(True, 0), (False, 1)])
def test_late_end_may_be_the_second_one_of_a_loaded_decision(
    *, is_loaded: bool, findings: int
) -> None:
    """The first transaction is decided at 10 s, and ends in the group at 10.05 s.

    Then the transaction coordinator dies. With `is_loaded` the next coordinator loads the decision,
    and writes the marker again. Kafka applies this repeated marker, too. A load of the group delays
    the repeated marker, so that it ends the second transaction.
    """
    rows = Rows()
    pending(rows, 9)
    decided(rows, 10, ABORT)
    completed(rows, 10.05, committed=False)
    if is_loaded:
        loaded_open(rows, 10.1, ABORT)
    decided(rows, 10.2, "CompleteAbort")
    pending(rows, 11)
    decided(rows, 11.1, COMMIT)
    rows.load_completed(11.2, "broker-0", leader_epoch=3)
    completed(rows, 11.2, committed=False)

    assert check(rows).findings_total == findings


@pytest.mark.parametrize(("is_loaded", "findings"), [(True, 0), (False, 1)])
def test_late_end_of_a_loaded_decision_removes_an_offset_that_is_being_appended(
    *, is_loaded: bool, findings: int
) -> None:
    """The late end comes at 10.5 s, while the next transaction's offset is being appended.

    The decision on the first transaction has no row. The decision shows only in the load at 10 s.
    So without this load (`is_loaded` is False) nothing excuses the end.
    """
    rows = Rows()
    rows.assigned(1, "consumer-g-0")
    rows.committed(9.5, "consumer-g-0", offset=1)

    if is_loaded:
        loaded_open(rows, 10, ABORT)
    decided(rows, 10.1, "CompleteAbort")
    append_id = rows.append_started(10.4, "broker-0", leader_epoch=0, base_offset=20)
    rows.load_completed(10.5, "broker-0", leader_epoch=3)
    completed(rows, 10.5, committed=False)

    rows.append_completed(10.7, "broker-0", leader_epoch=0, base_offset=20, append_id=append_id)
    pending(rows, 10.7, append_id=append_id)
    decided(rows, 11, COMMIT)
    rows.committed(11.1, "consumer-g-0", offset=2)

    rows.assigned(12, "consumer-g-0")
    rows.fetched(12.1, "consumer-g-0", offset=1)
    report = check(rows)

    assert report.findings_total == findings
    assert report.excused == ({} if findings else {FORGOTTEN: 1})


@pytest.mark.parametrize(
    ("loaded_s", "started_s", "incarnation", "findings"),
    [
        pytest.param(10.5, 10.4, 0, 0, id="excused"),
        pytest.param(9, 10.4, 0, 1, id="the load is before the decision"),
        pytest.param(10.5, 10.6, 0, 1, id="the append begins after the end"),
        pytest.param(10.5, 10.4, 1, 1, id="the append is of the next incarnation"),
    ],
)
def test_late_end_removes_an_offset_that_is_being_appended(
    loaded_s: float, started_s: float, incarnation: int, findings: int
) -> None:
    """The next transaction's offset is being appended when the late end comes, at 10.5 s.

    Kafka forgets such an offset, although its commit is acknowledged. There is no excuse in three
    cases:

    - No load comes between the decision, at 10 s, and the end.
    - The append began after the end.
    - The append is of the broker's next incarnation, which counts its append ids anew.
    """
    rows = Rows()
    rows.assigned(1, "consumer-g-0")
    rows.committed(9.5, "consumer-g-0", offset=1)

    # The end of the first transaction comes behind a load.
    decided(rows, 10, COMMIT)
    decided(rows, 10.1, "CompleteCommit")
    rows.load_completed(loaded_s, "broker-0", leader_epoch=3)
    completed(rows, 10.5, committed=True)

    # The next transaction.
    append_id = rows.append_started(started_s, "broker-0", leader_epoch=0, base_offset=20)
    rows.append_completed(10.7, "broker-0", leader_epoch=0, base_offset=20, append_id=append_id)
    pending(rows, 10.7, append_id=append_id, incarnation=incarnation)
    decided(rows, 11, COMMIT)
    rows.committed(11.1, "consumer-g-0", offset=2)

    rows.assigned(12, "consumer-g-0")
    rows.fetched(12.1, "consumer-g-0", offset=1)
    report = check(rows)

    assert report.findings_total == findings
    assert report.excused == ({} if findings else {FORGOTTEN: 1})


@pytest.mark.parametrize(
    ("loaded_s", "started_s", "offsets", "findings"),
    [
        pytest.param(10.5, 10.4, 0, 0, id="excused"),
        pytest.param(9, 10.4, 0, 1, id="the load is before the decision"),
        pytest.param(10.5, 10.6, 0, 1, id="the append begins after the end"),
        pytest.param(10.5, 10.4, 1, 1, id="the end counts the offset"),
    ],
)
def test_late_end_counts_no_offset_if_one_that_is_being_appended_has_replaced_it(
    loaded_s: float, started_s: float, offsets: int, findings: int
) -> None:
    """At the late end, an offset of the next transaction is being appended.

    In the coordinator's memory, this offset has replaced the offset of the transaction that ends.
    The append of the new offset never succeeds. So Kafka forgets both offsets, although the commit
    of the old offset was acknowledged. There is no excuse in three cases:

    - No load comes between the decision, at 10 s, and the end, at 10.5 s.
    - The append began after the end.
    - The end counts the old offset (`offsets` is 1).
    """
    rows = Rows()
    rows.assigned(1, "consumer-g-0")
    rows.committed(9, "consumer-g-0", offset=1)

    # The end of the first transaction comes behind a load.
    pending(rows, 9.5)
    decided(rows, 10, COMMIT)
    rows.committed(10.05, "consumer-g-0", offset=2)
    decided(rows, 10.1, "CompleteCommit")
    rows.load_completed(loaded_s, "broker-0", leader_epoch=3)
    completed(rows, 10.5, committed=True, offsets=offsets)

    # The next transaction.
    rows.append_started(started_s, "broker-0", leader_epoch=0, base_offset=20)

    rows.assigned(12, "consumer-g-0")
    rows.fetched(12.1, "consumer-g-0", offset=1)
    report = check(rows)

    assert report.findings_total == findings
    assert report.excused.get(FORGOTTEN, 0) == 1 - findings


@pytest.mark.parametrize(("loaded_s", "findings"), [(10.4, 0), (9, 1)])
def test_late_end_of_an_aborted_transaction_removes_offsets_of_the_next_one_too(
    loaded_s: float, findings: int
) -> None:
    """Both transactions have a pending offset when the first transaction ends, at 10.5 s.

    Kafka removes both offsets. The end agrees with the decision on the first transaction, so the
    end itself is not wrong. But the commit of the second transaction is lost, too. Only a load
    between the first decision, at 10 s, and the end excuses this loss.
    """
    rows = Rows()
    rows.assigned(1, "consumer-g-0")
    rows.committed(9, "consumer-g-0", offset=1)

    pending(rows, 9.5)
    decided(rows, 10, ABORT)
    decided(rows, 10.1, "CompleteAbort")
    pending(rows, 10.2)
    decided(rows, 10.3, COMMIT)
    rows.load_completed(loaded_s, "broker-0", leader_epoch=3)
    rows.committed(10.45, "consumer-g-0", offset=2)
    completed(rows, 10.5, committed=False)

    rows.assigned(12, "consumer-g-0")
    rows.fetched(12.1, "consumer-g-0", offset=1)
    report = check(rows)

    assert report.findings_total == findings
    assert report.excused == ({} if findings else {LATE_END: 1, FORGOTTEN: 1})


@pytest.mark.parametrize(("loaded_s", "findings"), [(10.5, 0), (9, 1)])
@pytest.mark.parametrize("is_known_since_before", [False, True])
def test_late_end_may_come_before_the_next_decision(
    loaded_s: float, findings: int, *, is_known_since_before: bool
) -> None:
    """The end of an aborted transaction, at 11.2 s, removes an offset of the next transaction.

    The next transaction is decided only after this end, at 11.3 s. Only a load between the first
    decision, at 10 s, and the end is an excuse.

    `is_known_since_before` changes nothing. If it is True, broker-1 had an offset of a still
    earlier transaction when it coordinated the group before broker-0. The marker of this earlier
    transaction is in the log that broker-0 loaded.
    """
    rows = Rows()
    rows.assigned(1, "consumer-g-0")
    rows.committed(2, "consumer-g-0", offset=1)
    if is_known_since_before:
        pending(rows, 3, node="broker-1")
        decided(rows, 3.1, COMMIT)
        decided(rows, 3.2, "CompleteCommit")

    decided(rows, 10, ABORT)
    decided(rows, 10.1, "CompleteAbort")
    rows.load_completed(loaded_s, "broker-0", leader_epoch=3)
    pending(rows, 11)
    completed(rows, 11.2, committed=False)
    decided(rows, 11.3, COMMIT)
    rows.committed(11.4, "consumer-g-0", offset=2)

    rows.assigned(12, "consumer-g-0")
    rows.fetched(12.1, "consumer-g-0", offset=1)
    report = check(rows)

    assert report.findings_total == findings
    assert report.excused == ({} if findings else {LATE_END: 1, FORGOTTEN: 1})


@pytest.mark.parametrize(
    ("former_ends_s", "is_found_pending", "findings"),
    [
        pytest.param(10.45, True, 0, id="the former coordinator ends it after the next offset"),
        pytest.param(10.25, True, 0, id="the former coordinator ends it before the next offset"),
        pytest.param(10.45, False, 1, id="the load finds the marker"),
    ],
)
def test_end_at_a_former_coordinator_leaves_the_offset_to_the_late_end_of_the_next(
    former_ends_s: float, findings: int, *, is_found_pending: bool
) -> None:
    """The group moves from broker-1 to broker-0 while an offset is pending.

    1. broker-0 loads the group at 10.1 s, and finds the offset of the first transaction pending.
       The marker comes, but its effects wait behind another load, until 10.5 s.
    2. The producer's second transaction gets a pending offset at 10.3 s.
    3. broker-1 ends the offset of the first transaction in its own memory, at `former_ends_s`. At
       broker-0 the offset is still pending.
    4. At 10.5 s the late end removes both offsets at broker-0, because the third transaction's
       offset, which has replaced them, is being appended. So Kafka forgets both.

    If `is_found_pending` is False, broker-0 has loaded the marker together with the offset. Then
    the first transaction counts at broker-0, and nothing excuses that its offset is missing.
    """
    rows = Rows()
    rows.assigned(1, "consumer-g-0")
    rows.committed(9, "consumer-g-0", offset=1)
    pending(rows, 9.5, node="broker-1")
    decided(rows, 10, COMMIT)
    rows.committed(10.05, "consumer-g-0", offset=2)
    rows.group_loaded(10.1, "broker-0", pending=(0,) if is_found_pending else ())
    decided(rows, 10.2, "CompleteCommit")

    pending(rows, 10.3, append_id=1)
    completed(rows, former_ends_s, committed=True, node="broker-1")
    decided(rows, 10.35, COMMIT)
    decided(rows, 10.4, "CompleteCommit")
    rows.append_started(10.45, "broker-0", leader_epoch=0, base_offset=20)
    rows.load_completed(10.5, "broker-0", leader_epoch=3)
    completed(rows, 10.5, committed=True, offsets=0)

    rows.assigned(12, "consumer-g-0")
    rows.fetched(12.1, "consumer-g-0", offset=1)
    report = check(rows)

    assert report.findings_total == findings
    assert report.excused.get(FORGOTTEN, 0) == 1 - findings


def test_wrong_end_without_a_load_has_no_excuse() -> None:
    """Planted bug: the ends of two transactions are mixed up.

    The load at 9 s is too early to have delayed the marker.
    """
    report = check(late_end(Rows(), loaded_s=9))

    assert "broker-0 forgot the offsets of a transaction" in report.findings[0].summary


def test_wrong_end_after_the_previous_one_has_no_excuse() -> None:
    """The aborted transaction has ended at 10.05 s, so it has no other end.

    The end at 11.2 s can only be the end of the committed transaction, and is wrong.
    """
    rows = Rows()
    pending(rows, 9)
    completed(rows, 10.05, committed=False)

    assert check(late_end(rows, loaded_s=10.5)).findings


def test_producer_id_that_was_assigned_twice_is_found() -> None:
    """Planted bug: brokers get blocks of producer ids that overlap.

    So the producer id 0 is given to consumer-g-0, and then to consumer-g-1.
    """
    rows = Rows()
    decided(rows, 10, COMMIT)
    rows.add(
        11,
        "broker-1",
        TraceKind.TRANSACTION_STATE,
        partition="__transaction_state-1",
        detail={
            "transactional_id": "consumer-g-1",
            "producer_id": 0,
            "from": "Empty",
            "to": "Ongoing",
        },
    )

    (finding,) = check(rows).findings

    assert "producer id 0 was given to two transactional ids" in finding.summary


def test_invalid_producer_id_is_found() -> None:
    """Planted bug: the ids of a block are counted down, and so become negative."""
    rows = Rows()
    decided(rows, 10, COMMIT, producer_id=-7)

    assert "has the producer id -7, but valid ids begin at 0" in check(rows).findings[0].summary
