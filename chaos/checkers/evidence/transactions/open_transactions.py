"""Transactions without an end, and offsets that wait for the end of their transaction.

A transaction is open from its first state Ongoing until all of its markers are written. A marker is
the record that ends the transaction in a partition. An offset that was committed in a transaction
is unstable, which means that no member may use it, from its row TXN_COMMIT_PENDING until its marker
arrives in the group's partition (TRANSACTION_COMPLETED). If the group is deleted, the offset is
deleted with it.

When a coordinator loads a partition, the rows of the load show which transactions and offsets are
in the log. From then on only these transactions and offsets count, because the log decides. There
is one exception: a broker may still load a partition in an older leader epoch than the newest one,
because it was paused, or because another broker was elected during its load. The newer leader may
have ended transactions that this load still finds open, or the load may end before the end of the
log. So such an outdated load is ignored, even if it began before the newer one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of
from protocol.causes import DELETIONS
from protocol.trace import TraceKind, TraceRow

OPEN_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TRANSACTIONS_LOADED,
        TraceKind.LOAD_STARTED,
        TraceKind.GROUP_LOADED,
        TraceKind.GROUP_STATE,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
    }
)
"""Kinds of rows that OpenTransactions must see."""
ONGOING = "Ongoing"
OPEN_STATES = frozenset({ONGOING, "PrepareCommit", "PrepareAbort"})
"""States of a transaction whose markers are not all written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction without an end."""

    transactional_id: str
    partition: str  # partition of `__transaction_state` that stores the transaction
    state: str
    since: TraceRow  # the first row that shows this state: TRANSACTION_STATE, or one of a load


class OpenTransactions:
    """Follows every transactional id, and the unstable offsets of every group."""

    def __init__(self, context: CheckContext) -> None:
        self._groups_in: dict[str, list[str]] = {}
        for group_id, expected in context.groups.items():
            self._groups_in.setdefault(expected.offsets_partition, []).append(group_id)
        self._open: dict[str, OpenTransaction] = {}  # by transactional id
        self._unstable: dict[tuple[str, int], TraceRow] = {}  # by (group, producer id)
        self._last: dict[int, TraceRow] = {}  # producer id -> its last TRANSACTION_STATE
        # partition -> the newest leader epoch in which it was loaded, or a transaction changed
        self._newest: dict[str, int] = {}
        self._loaders: dict[str, str] = {}  # group -> node of the load in the newest epoch

    @property
    def open(self) -> Mapping[str, OpenTransaction]:
        """Every open transaction, by transactional id."""
        return self._open

    @property
    def unstable(self) -> Mapping[tuple[str, int], TraceRow]:
        """By (group, producer id): the first row that shows unstable offsets of the producer."""
        return self._unstable

    def last_state(self, producer_id: int) -> TraceRow | None:
        """Return the last TRANSACTION_STATE of a producer id; None before the first."""
        return self._last.get(producer_id)

    def observe(self, row: TraceRow) -> None:
        """Take a row of OPEN_KINDS."""
        match row.kind:
            case TraceKind.TRANSACTION_STATE:
                self._is_outdated(row)  # called only to note the row's epoch
                self._note_state(row)
            case TraceKind.TRANSACTIONS_LOADED:
                if not self._is_outdated(row):
                    self._loaded(row)
            case TraceKind.LOAD_STARTED:
                # Forget the unstable offsets of the partition's groups. The rows GROUP_LOADED that
                # follow show which unstable offsets are in the log.
                if not self._is_outdated(row):
                    for group_id in self._groups_in.get(row.partition or "", ()):
                        self._loaders[group_id] = row.node
                        self._forget_unstable(group_id)
            case TraceKind.GROUP_STATE if row.cause in DELETIONS:
                self._forget_unstable(row.group or "")
            case TraceKind.GROUP_LOADED if self._loaders.get(row.group or "") == row.node:
                for producer_id in detail_of(row).get("pending", ()):
                    self._unstable[row.group or "", producer_id] = row
            case TraceKind.TXN_COMMIT_PENDING:
                self._unstable.setdefault((row.group or "", producer_of(row)), row)
            case TraceKind.TRANSACTION_COMPLETED:
                self._unstable.pop((row.group or "", producer_of(row)), None)
            case _:
                pass

    def _is_outdated(self, row: TraceRow) -> bool:
        """Return True if an earlier row had a newer leader epoch; note this row's epoch."""
        if row.leader_epoch is None:
            return False
        newest = self._newest.get(row.partition or "", row.leader_epoch)
        self._newest[row.partition or ""] = max(newest, row.leader_epoch)
        return row.leader_epoch < newest

    def _forget_unstable(self, group_id: str) -> None:
        of_group = [key for key in self._unstable if key[0] == group_id]
        for key in of_group:
            del self._unstable[key]

    def _note_state(self, row: TraceRow) -> None:
        """Note a transaction's new state; a state that is not open ends it."""
        detail = detail_of(row)
        transactional_id, state = detail["transactional_id"], detail["to"]
        self._last[detail["producer_id"]] = row
        if state not in OPEN_STATES:
            self._open.pop(transactional_id, None)
            return
        known = self._open.get(transactional_id)
        # The state Ongoing has several rows, one for each partition that joins the transaction. The
        # first of them is kept, because it shows since when the transaction has been open.
        if known is None or known.state != state:
            self._set_open(transactional_id, state, row)

    def _loaded(self, row: TraceRow) -> None:
        """Replace the open transactions of a partition by those that a load has found."""
        of_partition = [
            transaction
            for transaction in self._open.values()
            if transaction.partition == row.partition
        ]
        for transaction in of_partition:
            del self._open[transaction.transactional_id]
        for transactional_id, state in detail_of(row).get("open", {}).items():
            self._set_open(transactional_id, state, row)

    def _set_open(self, transactional_id: str, state: str, row: TraceRow) -> None:
        self._open[transactional_id] = OpenTransaction(
            transactional_id=transactional_id,
            partition=row.partition or "",
            state=state,
            since=row,
        )


def producer_of(row: TraceRow) -> int:
    """Return the producer id in a transaction's row."""
    producer_id: int = detail_of(row)["producer_id"]
    return producer_id
