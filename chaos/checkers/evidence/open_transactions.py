"""Transactions that wait for their end, and offsets that wait for their transaction's.

A transactional id is open from its first Ongoing, or from the load that finds it so, until all of
its markers are written. An offset that a transaction commits is unstable from TXN_COMMIT_PENDING,
or from the load that finds it so, until the marker comes (TRANSACTION_COMPLETED). What was known
before a load begins is forgotten: the log decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of
from protocol.trace import TraceKind, TraceRow

OPEN_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TRANSACTIONS_LOADED,
        TraceKind.LOAD_STARTED,
        TraceKind.GROUP_LOADED,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
    }
)
"""The rows that OpenTransactions must see."""
ONGOING = "Ongoing"
OPEN_STATES = frozenset({ONGOING, "PrepareCommit", "PrepareAbort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that has not ended. Shape: `since` brought it into `state`, or loaded it."""

    transactional_id: str
    partition: str
    state: str
    since: TraceRow


class OpenTransactions:
    """Follows every transactional id, and the unstable offsets of every group."""

    def __init__(self, context: CheckContext) -> None:
        self._groups_in: dict[str, list[str]] = {}
        for group_id, expected in context.groups.items():
            self._groups_in.setdefault(expected.offsets_partition, []).append(group_id)
        self._open: dict[str, OpenTransaction] = {}
        self._unstable: dict[tuple[str, int], TraceRow] = {}
        self._last: dict[int, TraceRow] = {}

    @property
    def open(self) -> Mapping[str, OpenTransaction]:
        """Every open transaction, by transactional id."""
        return self._open

    @property
    def unstable(self) -> Mapping[tuple[str, int], TraceRow]:
        """Since when a group has unstable offsets of a producer: (group, producer id) -> row."""
        return self._unstable

    def last_state(self, producer_id: int) -> TraceRow | None:
        """Return the last TRANSACTION_STATE of a producer id, None before any."""
        return self._last.get(producer_id)

    def observe(self, row: TraceRow) -> None:
        """Take in a row of OPEN_KINDS."""
        match row.kind:
            case TraceKind.TRANSACTION_STATE:
                self._entered(row)
            case TraceKind.TRANSACTIONS_LOADED:
                self._loaded(row)
            case TraceKind.LOAD_STARTED:
                for group_id in self._groups_in.get(row.partition or "", ()):
                    for key in [each for each in self._unstable if each[0] == group_id]:
                        del self._unstable[key]
            case TraceKind.GROUP_LOADED:
                for producer_id in detail_of(row).get("pending", ()):
                    self._unstable[row.group or "", producer_id] = row
            case TraceKind.TXN_COMMIT_PENDING:
                self._unstable.setdefault((row.group or "", producer_of(row)), row)
            case TraceKind.TRANSACTION_COMPLETED:
                self._unstable.pop((row.group or "", producer_of(row)), None)
            case _:
                pass

    def _entered(self, row: TraceRow) -> None:
        detail = detail_of(row)
        transactional_id, state = detail["transactional_id"], detail["to"]
        self._last[detail["producer_id"]] = row
        if state not in OPEN_STATES:
            self._open.pop(transactional_id, None)
            return
        known = self._open.get(transactional_id)
        if known is None or known.state != state:  # partitions added do not begin it anew
            self._note(transactional_id, state, row)

    def _loaded(self, row: TraceRow) -> None:
        for known in [each for each in self._open.values() if each.partition == row.partition]:
            del self._open[known.transactional_id]
        for transactional_id, state in detail_of(row).get("open", {}).items():
            self._note(transactional_id, state, row)

    def _note(self, transactional_id: str, state: str, row: TraceRow) -> None:
        self._open[transactional_id] = OpenTransaction(
            transactional_id=transactional_id,
            partition=row.partition or "",
            state=state,
            since=row,
        )


def producer_of(row: TraceRow) -> int:
    """Return the producer id that a row of a transaction is about."""
    producer_id: int = detail_of(row)["producer_id"]
    return producer_id
