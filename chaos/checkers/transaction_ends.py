"""Whether a transaction ended in a group as its coordinator had decided: counted, or forgotten.

The decision is a TRANSACTION_STATE row, the end in the group a TRANSACTION_COMPLETED row of the
group's coordinator, which the marker reaches later, sometimes after the next decision for the same
producer: any since the coordinator took the transaction's first offset will do. A coordinator that
loads what another decided and could not write down leaves no row, and nothing is judged.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.base import detail_of
from protocol.trace import TraceKind, TraceRow

END_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
    }
)
"""The rows that TransactionEnds must see."""
MAX_KEPT_DECISIONS = 16
_COMMIT, _ABORT = "PrepareCommit", "PrepareAbort"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEnd:
    """A group did not do what was decided. Shape: `evidence` holds the decisions and the end."""

    summary: str
    evidence: list[TraceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of a transaction in a group. Shape: `since` took its first offset."""

    row: TraceRow
    since: TraceRow
    producer_id: int


class TransactionEnds:
    """Follows the decisions for each producer, and looks at every end in a group.

    Units: `clock_error_us` bounds how far the clocks of two nodes are apart.
    """

    def __init__(self, clock_error_us: int) -> None:
        self._margin_us = clock_error_us
        self._decisions: dict[int, deque[TraceRow]] = {}  # by producer id
        self._since: dict[tuple[str, int], TraceRow] = {}  # (group, producer id)
        self._ends: deque[_End] = deque()  # not judged yet

    def observe(self, row: TraceRow) -> Iterator[WrongEnd]:
        """Take in a row of END_KINDS; yield what is known to be wrong from here."""
        detail = detail_of(row)
        producer_id = detail["producer_id"]
        match row.kind:
            case TraceKind.TRANSACTION_STATE if detail["to"] in (_COMMIT, _ABORT):
                known = self._decisions.setdefault(producer_id, deque(maxlen=MAX_KEPT_DECISIONS))
                known.append(row)
            case TraceKind.TXN_COMMIT_PENDING:
                self._since.setdefault((row.group or "", producer_id), row)
            case TraceKind.TRANSACTION_COMPLETED:
                since = self._since.pop((row.group or "", producer_id), None)
                if since is not None:
                    self._ends.append(_End(row=row, since=since, producer_id=producer_id))
            case _:
                pass
        # The decision came before, and may be told after it where clocks differ.
        yield from self._judge(row.time_us - self._margin_us)

    def finish(self) -> Iterator[WrongEnd]:
        """Yield what is wrong with the last ends."""
        yield from self._judge(None)

    def _judge(self, until_us: int | None) -> Iterator[WrongEnd]:
        while self._ends and (until_us is None or self._ends[0].row.time_us <= until_us):
            end = self._ends.popleft()
            decided = [
                row
                for row in self._decisions.get(end.producer_id, ())
                if row.time_us >= end.since.time_us - self._margin_us
            ]
            done = detail_of(end.row)
            is_commit = done["committed"] or done["offsets"] > 0
            wanted = _COMMIT if is_commit else _ABORT
            if not decided or any(detail_of(row)["to"] == wanted for row in decided):
                continue
            did, should = ("counted", "aborted") if is_commit else ("forgot", "committed")
            yield WrongEnd(
                summary=f"{end.row.group}: {end.row.node} {did} the offsets of a transaction of "
                f"producer {end.producer_id}, which was {should}",
                evidence=[end.since, *decided, end.row],
            )
