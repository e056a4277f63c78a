"""Transactional commits that Kafka 3.9 itself forgets, although their transaction was committed.

1. The append of a TxnOffsetCommit fails while the client's second attempt waits for the log: Kafka
   removes what is pending for the partition, whichever attempt it is of. The second one is
   acknowledged, and the marker finds nothing (Kafka `GroupMetadata.failPendingTxnOffsetCommit`).
   Corpus: `failed_append_empties_the_slot_of_the_next_attempt`.
2. What a marker says is carried out by the one thread that loads partitions, while its request is
   answered at once. Behind a load it comes when the producer's next transactions have committed
   offsets, and ends them too in the group (Kafka `scheduleHandleTxnCompletion`).
   Corpus: `end_of_a_transaction_that_comes_behind_a_load`.

The log has the commit in both cases, and the next load of the group shows it. Nothing else excuses
a commit that was acknowledged: 1 asks for the failed append, at the same coordinator and within the
transaction, and for an end in the group that never came; 2 is judged by `transaction_ends`.
"""

from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.open_transactions import producer_of
from protocol.trace import TraceKind, TraceRow

FORGETTING_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
        TraceKind.APPEND_COMPLETED,
    }
)
"""The rows that ForgottenCommits must see."""


@dataclass(slots=True)
class _Producer:
    """The transaction of a producer. Units: when it began, and when its end was decided."""

    began_us: int = 0
    decided_us: int = 0


class ForgottenCommits:
    """Knows when a group forgot what a member had committed in transactions."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._producers: dict[int, _Producer] = {}
        self._pending: dict[tuple[str, int], TraceRow] = {}  # (group, producer id)
        self._failed: dict[tuple[str, str], int] = {}  # (broker, partition): last failed append
        self._times: dict[tuple[str, str | None], list[tuple[int, int]]] = {}

    def forget(self, group: str, member: str | None, from_us: int, to_us: int) -> None:
        """Take in that a group has forgotten what a member committed from `from_us` to `to_us`."""
        self._times.setdefault((group, member), []).append((from_us, to_us))

    def has_forgotten(self, group: str, member: str | None, sent_us: int, answered_us: int) -> bool:
        """Whether the group has forgotten a commit that was under way in this time.

        A group that was loaded meanwhile does not know whose commits its transactions hold.
        """
        times = (*self._times.get((group, member), ()), *self._times.get((group, None), ()))
        return any(sent_us <= to_us and from_us <= answered_us for from_us, to_us in times)

    def observe(self, row: TraceRow) -> None:
        """Take in a row of FORGETTING_KINDS."""
        match row.kind:
            case TraceKind.APPEND_COMPLETED:
                if row.error != "NONE":
                    self._failed[row.node, row.partition or ""] = row.time_us
            case TraceKind.TXN_COMMIT_PENDING:
                self._pending[row.group or "", producer_of(row)] = row
            case TraceKind.TRANSACTION_COMPLETED:
                self._pending.pop((row.group or "", producer_of(row)), None)
            case TraceKind.TRANSACTION_STATE:
                self._entered(row)
            case _:
                pass

    def _entered(self, row: TraceRow) -> None:
        detail = detail_of(row)
        producer_id, state = detail["producer_id"], detail["to"]
        known = self._producers.setdefault(producer_id, _Producer())
        match state:
            case "Ongoing" if detail["from"] != "Ongoing":
                known.began_us = row.time_us
            case "PrepareCommit":
                known.decided_us = row.time_us
            case "CompleteCommit" | "CompleteAbort":
                for key in [each for each in self._pending if each[1] == producer_id]:
                    pending = self._pending.pop(key)
                    if state == "CompleteCommit":
                        self._never_ended(key[0], pending, known)
            case _:
                pass

    def _never_ended(self, group: str, pending: TraceRow, transaction: _Producer) -> None:
        expected = self._context.groups.get(group)
        if expected is None:
            return
        failed_us = self._failed.get((pending.node, expected.offsets_partition), -1)
        if transaction.began_us <= failed_us <= transaction.decided_us:
            self.forget(group, pending.member, transaction.decided_us, transaction.decided_us)
