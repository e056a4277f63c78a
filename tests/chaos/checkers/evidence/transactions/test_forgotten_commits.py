"""Acknowledged commits of transactions: which Kafka itself forgets, and which it must keep.

A producer can commit offsets in a transaction. While the transaction is open, the group keeps one
pending offset for each producer and partition, in a slot. A marker is the record that ends the
transaction. When the marker comes, the pending offset becomes the committed offset. In the
following case Kafka itself forgets a commit, and the checker excuses the loss:

1. The append of an offset takes long, and the client sends the offset again.
2. The first append fails. Kafka empties the slot, although the slot now belongs to the second
   attempt.
3. The second attempt succeeds, and the transaction is committed.
4. The marker that ends the transaction finds no pending offset, so the committed offset stays as it
   was before the transaction.

`rows.committed(2, C0, offset=3)` adds the row of a commit of C0 that is acknowledged at 2 s, with
offset 3 in t-0. `rows.fetched` adds the row of a member that gets the committed offset.
"""

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.durable_commits import DurableCommits
from chaos.checkers.evidence.transactions.forgotten_commits import FORGOTTEN
from protocol.trace import TraceKind
from results_schema.results import CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0 = "consumer-g-0"


def change_state(rows: Rows, time_s: float, before: str, to: str) -> None:
    """Let broker-2, which coordinates the transaction, change the state of the transaction."""
    rows.add(
        time_s,
        "broker-2",
        TraceKind.TRANSACTION_STATE,
        partition="__transaction_state-0",
        detail={"transactional_id": C0, "producer_id": 0, "from": before, "to": to},
    )


def lost_commit(
    *, failed_s: float | None, node: str = "broker-0", is_completed: bool = False
) -> Rows:
    """Return rows of offset 5, which is committed in a transaction and acknowledged, but lost.

    A later fetch returns offset 3, which was committed before. The transaction is open from 10 s to
    13 s.

    - `failed_s` is the time at which an append fails on the broker `node`. None: no append fails.
    - If `is_completed` is True, there is a row of the group that completes the transaction. The row
      says that one offset was committed.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.committed(2, C0, offset=3)

    # The transaction begins. A first append may fail. Then the offset 5 is pending.
    change_state(rows, 10, "Empty", "Ongoing")
    if failed_s is not None:
        rows.append_completed(
            failed_s, node, leader_epoch=0, base_offset=20, append_id=1, error="REQUEST_TIMED_OUT"
        )
    rows.add(
        12,
        "broker-0",
        TraceKind.TXN_COMMIT_PENDING,
        group="g",
        partition="t-0",
        offset=5,
        detail={"producer_id": 0},
    )

    # The commit is decided and acknowledged. Then the transaction ends in the group (if
    # `is_completed`), and as a whole.
    change_state(rows, 13, "Ongoing", "PrepareCommit")
    rows.committed(13.01, C0, offset=5)
    if is_completed:
        rows.add(
            13.02,
            "broker-0",
            TraceKind.TRANSACTION_COMPLETED,
            group="g",
            detail={"producer_id": 0, "committed": True, "offsets": 1},
        )
    change_state(rows, 13.1, "PrepareCommit", "CompleteCommit")

    rows.assigned(14, C0)
    rows.fetched(14.1, C0, offset=3)
    return rows


def check(rows: Rows) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report."""
    group = GroupExpectation(consumers=(C0,), offsets_partition=OFFSETS_0, commits=True)
    checker = DurableCommits(CheckContext(groups={"g": group}))
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def test_commit_whose_pending_slot_a_failed_append_emptied_is_excused() -> None:
    """An append fails at 11 s, while the transaction is open.

    So Kafka may have emptied the slot.
    """
    report = check(lost_commit(failed_s=11))

    assert not report.findings
    assert report.excused == {FORGOTTEN: 1}


def test_lost_commit_without_a_failed_append_in_its_transaction_is_found() -> None:
    """Without a failed append the slot was not emptied, so the commit must not be lost.

    An append that failed at 9 s, before the transaction began, does not excuse the loss either.
    """
    for failed_s in (None, 9.0):
        (finding,) = check(lost_commit(failed_s=failed_s)).findings
        assert "offset 5 was acknowledged" in finding.summary


def test_failed_append_of_another_broker_excuses_nothing() -> None:
    """broker-0 is the group's coordinator.

    A failed append of broker-1 empties no slot of broker-0.
    """
    assert check(lost_commit(failed_s=11, node="broker-1")).findings


def test_commit_that_ended_in_the_group_was_not_forgotten() -> None:
    """The group has completed the transaction with one offset, so the slot was not empty."""
    assert check(lost_commit(failed_s=11, is_completed=True)).findings
