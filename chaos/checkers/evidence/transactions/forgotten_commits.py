"""Transactional commits that Kafka 3.9 itself forgets, although their transaction was committed.

A pending offset is an offset of a transaction that has not ended yet. The marker ends it: a record
that the transaction coordinator writes to the offsets partition (the partition of
`__consumer_offsets` that stores the group). Kafka forgets commits in two cases:

1. The append of a TxnOffsetCommit (the request that commits offsets in a transaction) fails while
   the client's second attempt waits for the log. Kafka then removes the pending offset of the
   partition, although it now belongs to the second attempt. The second attempt is acknowledged, but
   its marker finds no offset (Kafka `GroupMetadata.failPendingTxnOffsetCommit`).
2. The request that writes a marker is answered immediately, but the effects of the marker wait for
   the single thread that loads partitions. If a load is running, the effects come late. If the
   producer's next transactions have committed offsets in the meantime, the effects end these
   transactions, too (Kafka `scheduleHandleTxnCompletion`). They also remove an offset of the
   producer whose append is in progress: its transaction is acknowledged, and its marker finds no
   offset (Kafka `GroupMetadata.completePendingTxnOffsetCommit`). If the removed offset had
   replaced an offset of a committed transaction, that older offset is lost, too.

Schedules of the corpus (files that the tests play) show the cases:
`failed_append_empties_the_slot_of_the_next_attempt`,
`end_of_a_transaction_that_comes_behind_a_load`,
`late_end_of_a_transaction_while_the_next_offset_is_appended` and
`late_end_while_a_replacing_offset_is_appended`.

In both cases the log has the commit, and the next load of the group shows it. Nothing else excuses
the loss of an acknowledged commit. Two facts prove case 1: an append failed at the same coordinator
during the transaction, and the transaction never ended in the group. `transaction_ends` judges
case 2.
"""

from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.transactions.open_transactions import producer_of
from protocol.trace import TraceKind, TraceRow

FORGETTING_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
        TraceKind.APPEND_COMPLETED,
    }
)
"""Kinds of rows that ForgottenCommits must see."""


@dataclass(slots=True)
class _Producer:
    """The last transaction of a producer. `decided_us` is the time at which its end was decided."""

    began_us: int = 0
    decided_us: int = 0


class ForgottenCommits:
    """Knows the times of commits that groups forgot."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._producers: dict[int, _Producer] = {}
        self._pending: dict[tuple[str, int], TraceRow] = {}  # (group, producer id)
        # (broker, partition) -> time of the last failed append
        self._failed: dict[tuple[str, str], int] = {}
        # (group, member) -> times in which its commits were forgotten
        self._times: dict[tuple[str, str | None], list[tuple[int, int]]] = {}

    def forget(self, group: str, member: str | None, from_us: int, to_us: int) -> None:
        """Record that a group forgot a member's commits between `from_us` and `to_us`."""
        self._times.setdefault((group, member), []).append((from_us, to_us))

    def has_forgotten(self, group: str, member: str | None, sent_us: int, answered_us: int) -> bool:
        """Return True if the group forgot commits between `sent_us` and `answered_us`.

        A group that was loaded in the meantime does not know the members of its transactional
        commits. So an entry without a member counts for all members.
        """
        times = (*self._times.get((group, member), ()), *self._times.get((group, None), ()))
        return any(sent_us <= to_us and from_us <= answered_us for from_us, to_us in times)

    def observe(self, row: TraceRow) -> None:
        """Take a row of FORGETTING_KINDS."""
        match row.kind:
            case TraceKind.APPEND_COMPLETED:
                if row.error != "NONE":
                    self._failed[row.node, row.partition or ""] = row.time_us
            case TraceKind.TXN_COMMIT_PENDING:
                self._pending[row.group or "", producer_of(row)] = row
            case TraceKind.TRANSACTION_COMPLETED:
                self._pending.pop((row.group or "", producer_of(row)), None)
            case TraceKind.TRANSACTION_STATE:
                self._note_state(row)
            case _:
                pass

    def _note_state(self, row: TraceRow) -> None:
        """Note the times of a transaction; at its end, look for offsets that are still pending."""
        detail = detail_of(row)
        producer_id, state = detail["producer_id"], detail["to"]
        known = self._producers.setdefault(producer_id, _Producer())
        match state:
            case "Ongoing" if detail["from"] != "Ongoing":
                known.began_us = row.time_us
            case "PrepareCommit":
                known.decided_us = row.time_us
            case "CompleteCommit" | "CompleteAbort":
                # All markers are written. An offset that still waits will never get an end.
                of_producer = [key for key in self._pending if key[1] == producer_id]
                for key in of_producer:
                    pending = self._pending.pop(key)
                    if state == "CompleteCommit":
                        self._note_missing_end(key[0], pending, known)
            case _:
                pass

    def _note_missing_end(self, group: str, pending: TraceRow, transaction: _Producer) -> None:
        """Note a forgotten commit if an append failed during its transaction (case 1)."""
        expected = self._context.groups.get(group)
        if expected is None:
            return
        # -1: no append failed. It is before the beginning of every transaction.
        failed_us = self._failed.get((pending.node, expected.offsets_partition), -1)
        if transaction.began_us <= failed_us <= transaction.decided_us:
            self.forget(group, pending.member, transaction.decided_us, transaction.decided_us)
