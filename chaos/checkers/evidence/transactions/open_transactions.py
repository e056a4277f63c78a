"""Transactions without an end, and offsets that wait for the end of their transaction.

A marker is the record that ends a transaction (commit or abort) in a partition. A load is the
reading of a partition of `__consumer_offsets` or `__transaction_state` into a coordinator's memory.

A transaction is open from its first state Ongoing, or from a load that finds it open, until all of
its markers are written. An offset of a transaction is unstable from its TXN_COMMIT_PENDING, or from
a load that finds it unstable, until the marker arrives (TRANSACTION_COMPLETED) or the group is
deleted. A load replaces all earlier knowledge about its partition, because the log decides. A load
of an older leader epoch than the newest known one changes nothing: a broker that was paused may
still load what its successor has loaded before, and has ended since.
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
    """A transaction without an end. `since` is the row that shows its state: a change or a load."""

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
        self._unstable: dict[tuple[str, int], TraceRow] = {}  # by (group, producer id)
        self._last: dict[int, TraceRow] = {}  # by producer id
        # Partition -> the newest leader epoch of a load or of a transaction's state.
        self._newest: dict[str, int] = {}
        # The keys (node, group) are the groups that an outdated load reads now.
        self._outdated: dict[tuple[str, str], None] = {}

    @property
    def open(self) -> Mapping[str, OpenTransaction]:
        """Every open transaction, by transactional id."""
        return self._open

    @property
    def unstable(self) -> Mapping[tuple[str, int], TraceRow]:
        """The first row that shows unstable offsets, by (group, producer id)."""
        return self._unstable

    def last_state(self, producer_id: int) -> TraceRow | None:
        """Return the last TRANSACTION_STATE of a producer id; None before the first."""
        return self._last.get(producer_id)

    def observe(self, row: TraceRow) -> None:
        """Take a row of OPEN_KINDS."""
        match row.kind:
            case TraceKind.TRANSACTION_STATE:
                self._is_outdated(row)  # notes the epoch
                self._note_state(row)
            case TraceKind.TRANSACTIONS_LOADED:
                if not self._is_outdated(row):
                    self._loaded(row)
            case TraceKind.LOAD_STARTED:
                # The rows GROUP_LOADED of this load follow.
                is_outdated = self._is_outdated(row)
                for group_id in self._groups_in.get(row.partition or "", ()):
                    self._outdated.pop((row.node, group_id), None)
                    if is_outdated:
                        self._outdated[row.node, group_id] = None
                    else:
                        self._forget_unstable(group_id)
            case TraceKind.GROUP_STATE if row.cause in DELETIONS:
                self._forget_unstable(row.group or "")
            case TraceKind.GROUP_LOADED if (row.node, row.group or "") not in self._outdated:
                for producer_id in detail_of(row).get("pending", ()):
                    self._unstable[row.group or "", producer_id] = row
            case TraceKind.TXN_COMMIT_PENDING:
                self._unstable.setdefault((row.group or "", producer_of(row)), row)
            case TraceKind.TRANSACTION_COMPLETED:
                self._unstable.pop((row.group or "", producer_of(row)), None)
            case _:
                pass

    def _is_outdated(self, row: TraceRow) -> bool:
        """Return True if a newer leader epoch of the row's partition is known; note its epoch."""
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
        # When a partition is added to a transaction, another row with the state Ongoing comes. The
        # first row is kept, because it shows since when the transaction is in this state.
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
