"""Transactional commits that Kafka 3.9 itself forgets, although their transaction was committed.

When a member commits offsets in a transaction (TxnOffsetCommit), the group's coordinator keeps them
as pending until the transaction's marker arrives. In two cases Kafka loses a pending offset. The
commit is then missing from the coordinator's memory, but not from its log, so that the next load
brings it back.

Case 1, a failed append (Kafka `GroupMetadata.failPendingTxnOffsetCommit`):

1. The append of an offset is slow, and the client sends its TxnOffsetCommit again. Now the pending
   offset belongs to this second attempt, which waits for its own append.
2. The first append fails. The coordinator removes the pending offset.
3. The second append succeeds, and the client gets its acknowledgement. But when the marker arrives,
   there is no pending offset that it could make valid.

Case 2, a late end (Kafka `scheduleHandleTxnCompletion`):

1. The marker of a transaction is written. Its effects on the group's pending offsets wait for the
   thread that loads partitions, which is busy with a load. The transaction coordinator does not
   know this, and completes the transaction.
2. The same producer begins its next transaction, and commits offsets in it.
3. The load is over, and the effects take place. They end all pending offsets of the producer, even
   those of the next transaction. An offset whose append is in progress is removed (Kafka
   `GroupMetadata.completePendingTxnOffsetCommit`). If this offset had replaced an offset of a
   committed transaction, that older offset is lost, too.

This module recognizes case 1: an append failed at the coordinator during the transaction, and the
transaction never ended in the group. `transaction_ends` recognizes case 2.

Schedules of the tests' corpus show the cases:
`failed_append_empties_the_slot_of_the_next_attempt`,
`end_of_a_transaction_that_comes_behind_a_load`,
`late_end_of_a_transaction_while_the_next_offset_is_appended`,
`late_end_while_a_replacing_offset_is_appended`,
`late_end_after_that_of_the_former_coordinator`,
`first_commit_after_a_deletion_is_forgotten` and
`first_commit_forgotten_and_a_reset_to_latest`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.lost_data import LostData
from chaos.checkers.evidence.transactions.open_transactions import producer_of
from chaos.checkers.evidence.transactions.transaction_ends import (
    END_KINDS,
    TransactionEnds,
    WrongEnd,
)
from protocol.trace import TraceKind, TraceRow

FORGETTING_KINDS = END_KINDS
"""Kinds of rows that ForgottenCommits must see."""
FORGOTTEN = "transactional commit that Kafka forgets until the next load"
"""Name of the excuse in the report."""


@dataclass(slots=True)
class _Producer:
    """The last transaction of a producer."""

    began_us: int = 0
    decided_us: int = 0  # when the transaction coordinator decided to commit it


class ForgottenCommits:
    """Tells whether a group may have forgotten a certain commit.

    `lost_data`: partitions that lost data. The caller feeds rows to it.
    """

    def __init__(self, context: CheckContext, lost_data: LostData) -> None:
        self._context = context
        self._transaction_ends = TransactionEnds(context.clock_error_us, lost_data)
        self.wrong_ends: list[WrongEnd] = []
        """Ends that do not agree with their decisions.

        The checker `durable_commits` reports them, and then empties this list and `late_ends`.
        """
        self.late_ends: list[TraceRow] = []
        """Rows of late ends (case 2)."""
        self._producers: dict[int, _Producer] = {}
        # (group, producer id) -> the row of its last pending offset
        self._pending: dict[tuple[str, int], TraceRow] = {}
        # (broker, partition) -> time of the last failed append
        self._failed: dict[tuple[str, str], int] = {}
        # (group, member) -> times (from, to) between which its commits may have been forgotten
        self._times: dict[tuple[str, str | None], list[tuple[int, int]]] = {}

    def has_forgotten(self, group: str, member: str | None, sent_us: int, answered_us: int) -> bool:
        """Return True if the group may have forgotten a commit of a member.

        `sent_us` and `answered_us` are the times between which the commit was made. An entry of
        `_times` without a member counts for all members: a coordinator that has loaded the group
        from its log does not know which member made a commit.
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
        self._note_ends(self._transaction_ends.observe(row))

    def finish(self) -> None:
        """Judge the last ends of transactions."""
        self._note_ends(self._transaction_ends.finish())

    def _note_ends(self, wrong_ends: Iterable[WrongEnd]) -> None:
        """Keep wrong ends of transactions, and note what late ends made a group forget (case 2)."""
        self.wrong_ends.extend(wrong_ends)
        for since, late_end in self._transaction_ends.late:
            # The late end has taken all offsets of the producer from the row `since` on.
            self._forget(since.group or "", since.member, since.time_us, late_end.time_us)
            self.late_ends.append(late_end)
        self._transaction_ends.late.clear()
        for pending, late_end in self._transaction_ends.emptied:
            # The end removed an offset whose append was in progress. So only a commit that was in
            # progress at the moment of the end can be forgotten.
            self._forget(pending.group or "", pending.member, late_end.time_us, late_end.time_us)
        self._transaction_ends.emptied.clear()

    def _forget(self, group: str, member: str | None, from_us: int, to_us: int) -> None:
        """Record that a group forgot a member's commits between `from_us` and `to_us`."""
        self._times.setdefault((group, member), []).append((from_us, to_us))

    def _note_state(self, row: TraceRow) -> None:
        """Note the times of a transaction; at its end, look for pending offsets without an end."""
        detail = detail_of(row)
        producer_id, state = detail["producer_id"], detail["to"]
        transaction = self._producers.setdefault(producer_id, _Producer())
        match state:
            case "Ongoing" if detail["from"] != "Ongoing":
                transaction.began_us = row.time_us
            case "PrepareCommit":
                transaction.decided_us = row.time_us
            case "CompleteCommit" | "CompleteAbort":
                # All markers are written. An offset that is still pending will get no end.
                groups = [group for group, producer in self._pending if producer == producer_id]
                for group in groups:
                    pending = self._pending.pop((group, producer_id))
                    if state == "CompleteCommit":
                        self._note_missing_end(group, pending, transaction)
            case _:
                pass

    def _note_missing_end(self, group: str, pending: TraceRow, transaction: _Producer) -> None:
        """Note a forgotten commit if an append failed during its transaction (case 1)."""
        expected = self._context.groups.get(group)
        if expected is None:
            return
        # If no append failed, the time is -1, which is before every transaction.
        failed_us = self._failed.get((pending.node, expected.offsets_partition), -1)
        if transaction.began_us <= failed_us <= transaction.decided_us:
            self._forget(group, pending.member, transaction.decided_us, transaction.decided_us)
