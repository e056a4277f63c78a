"""Whether a transaction ended in a group as its coordinator had decided: counted, or forgotten.

The decision is a TRANSACTION_STATE row, the end in the group a TRANSACTION_COMPLETED row of the
group's coordinator, which the marker reaches later, sometimes after the next decision for the same
producer: any since the coordinator took the transaction's first offset will do. A coordinator that
loads what another decided and could not write down leaves no row, and nothing is judged. Nor is it
where the marker may be another transaction's: once the decision is carried out everywhere (a group
that was loaded with its marker leaves no row), and when the log of transactions lost its last
replica in sync with its data (`lost_data`) and is back at an older decision.

An end may come late, as in Kafka (`forgotten_commits`): it is then the end of the transaction
before, which was carried out before this one committed anything here, has not ended in the group
yet, and was decided so; and the coordinator has completed a load since that decision.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.context import detail_of
from chaos.checkers.evidence.lost_data import LostData
from protocol.trace import TraceKind, TraceRow

END_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
        TraceKind.LOAD_COMPLETED,
    }
)
"""The rows that TransactionEnds must see."""
MAX_KEPT_DECISIONS = 16
_COMMIT, _ABORT = "PrepareCommit", "PrepareAbort"
_CARRIED_OUT = ("CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEnd:
    """A group did not do what was decided, or could not know whose end it is.

    Shape: `evidence` holds the decisions and the end.
    """

    summary: str
    evidence: list[TraceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of a transaction in a group.

    Shape: `since` took its first offset. Units: `ended_us` is when the producer's transaction
    before ended in the group, `loaded_us` when the broker had last loaded a partition by then.
    `is_over`: the transaction of `since` had been carried out before, and the end may be another's.
    """

    row: TraceRow
    since: TraceRow
    producer_id: int
    ended_us: int
    loaded_us: int
    is_over: bool


class TransactionEnds:
    """Follows the decisions for each producer, and looks at every end in a group.

    Units: `clock_error_us` bounds how far the clocks of two nodes are apart. `lost_data` is kept
    up to date by the caller.
    """

    def __init__(self, clock_error_us: int, lost_data: LostData) -> None:
        self._margin_us = clock_error_us
        self._lost_data = lost_data
        self._decisions: dict[int, deque[TraceRow]] = {}  # by producer id
        self._carried_out_us: dict[int, int] = {}  # by producer id: the last decision that was
        self._since: dict[tuple[str, int], TraceRow] = {}  # (group, producer id)
        self._ends: deque[_End] = deque()  # not judged yet
        self._loaded_us: dict[str, int] = {}  # broker -> its last load
        self._ended_us: dict[tuple[str, int], int] = {}  # (group, producer id): the last end
        self._given: dict[
            int, TraceRow
        ] = {}  # producer id -> the first row of its transactional id
        self.late: list[tuple[TraceRow, TraceRow]] = []
        """Late ends, each behind the first offset that went with it though not its own."""

    def observe(self, row: TraceRow) -> Iterator[WrongEnd]:
        """Take in a row of END_KINDS; yield what is known to be wrong from here."""
        if row.kind == TraceKind.LOAD_COMPLETED:
            self._loaded_us[row.node] = row.time_us
            return
        detail = detail_of(row)
        producer_id = detail["producer_id"]
        if row.kind == TraceKind.TRANSACTION_STATE:
            first = self._given.setdefault(producer_id, row)
            if first is row and producer_id < 0:
                yield WrongEnd(
                    summary=f"{detail['transactional_id']} has the producer id {producer_id}, "
                    "which is none",
                    evidence=[row],
                )
            if detail_of(first)["transactional_id"] != detail["transactional_id"]:
                self._given[producer_id] = row
                yield WrongEnd(
                    summary=f"producer id {producer_id} was given to two transactional ids: whose "
                    "transaction ends, nobody can tell",
                    evidence=[first, row],
                )
        match row.kind:
            case TraceKind.TRANSACTION_STATE if detail["to"] in (_COMMIT, _ABORT):
                known = self._decisions.setdefault(producer_id, deque(maxlen=MAX_KEPT_DECISIONS))
                known.append(row)
            case TraceKind.TRANSACTION_STATE if detail["to"] in _CARRIED_OUT:
                self._carried_out_us[producer_id] = row.time_us
            case TraceKind.TXN_COMMIT_PENDING:
                self._since.setdefault((row.group or "", producer_id), row)
            case TraceKind.TRANSACTION_COMPLETED:
                key = (row.group or "", producer_id)
                since = self._since.pop(key, None)
                ended_us = self._ended_us.get(key, -1)
                self._ended_us[key] = row.time_us
                if since is None:
                    return
                self._ends.append(
                    _End(
                        row=row,
                        since=since,
                        producer_id=producer_id,
                        ended_us=ended_us,
                        loaded_us=self._loaded_us.get(row.node, -1),
                        is_over=self._is_over(since, row, producer_id),
                    )
                )
            case _:
                pass
        # The decision came before, and may be told after it where clocks differ.
        yield from self._judge(row.time_us - self._margin_us)

    def finish(self) -> Iterator[WrongEnd]:
        """Yield what is wrong with the last ends."""
        yield from self._judge(None)

    def _is_over(self, since: TraceRow, end: TraceRow, producer_id: int) -> bool:
        """Whether the transaction of `since` had been carried out before a marker came in `end`."""
        carried_out_us = self._carried_out_us.get(producer_id, -1)
        return since.time_us + self._margin_us < carried_out_us < end.time_us - self._margin_us

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
            if any(self._is_lost(row) for row in decided):
                continue
            if self._is_of_the_one_before(end, wanted):
                self.late.append((end.since, end.row))
                continue
            if end.is_over:
                continue
            did, should = ("counted", "aborted") if is_commit else ("forgot", "committed")
            yield WrongEnd(
                summary=f"{end.row.group}: {end.row.node} {did} the offsets of a transaction of "
                f"producer {end.producer_id}, which was {should}",
                evidence=[end.since, *decided, end.row],
            )

    def _is_of_the_one_before(self, end: _End, wanted: str) -> bool:
        """Whether an end is that of the transaction before, late."""
        since_us = end.since.time_us
        before = [row for row in self._decisions.get(end.producer_id, ()) if row.time_us < since_us]
        if not before:
            return False
        decision = before[-1]
        return (
            detail_of(decision)["to"] == wanted
            and end.ended_us < decision.time_us
            and decision.time_us <= end.loaded_us
        )

    def _is_lost(self, decision: TraceRow) -> bool:
        """Whether a decision may be gone, and the log be back at one before."""
        losses = self._lost_data.of(decision.partition or "")
        return bool(losses) and losses[-1].time_us > decision.time_us
