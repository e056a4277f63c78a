"""Events that may have led to a finding, such as faults, elections, fencing, loads and rebalances.

A finding is a violation that a checker reports. Its evidence proves the violation, but often does
not tell how it came about: "offset 20 was lost" does not show that the coordinator changed just
before. So a finding also lists the events that came before its evidence and during it. This module
keeps the rows of such events and chooses those that belong to a finding.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from protocol.ids import controller_name
from protocol.trace import TraceKind, TraceRow

# The kinds of rows, by what the rows are about.
_FAULTS = (TraceKind.FAULT_INJECTED, TraceKind.FAULT_HEALED)
_OF_BROKERS = (TraceKind.BROKER_FENCED, TraceKind.BROKER_UNFENCED)
_OF_PARTITIONS = (
    TraceKind.LEADER_ELECTED,
    TraceKind.ISR_CHANGED,
    TraceKind.BECAME_LEADER,
    TraceKind.BECAME_FOLLOWER,
    TraceKind.LOG_TRUNCATED,
    TraceKind.LOAD_COMPLETED,
    TraceKind.UNLOAD_COMPLETED,
    TraceKind.UNLOAD_IGNORED,
)
_OF_GROUPS = (
    TraceKind.REBALANCE_STARTED,
    TraceKind.GENERATION_STARTED,
    TraceKind.MEMBER_REMOVED,
)
TURNING_KINDS = frozenset((*_FAULTS, *_OF_BROKERS, *_OF_PARTITIONS, *_OF_GROUPS)) | {
    TraceKind.REQUEST_FAILED
}
"""Kinds of rows that TurningPoints must see."""
KEPT = 512
"""Number of rows that are kept. A small cluster writes so many in some minutes."""
MOST_FAULTS, MOST_OTHERS = 4, 8
"""A finding shows at most 4 rows about faults and 8 other rows, the last ones.

A longer list would be hard to read.
"""
_CONTROLLERS = controller_name(0).removesuffix("0")  # the beginning of every controller's name


class TurningPoints:
    """Keeps the last rows that may have led to a later finding."""

    def __init__(self) -> None:
        self._rows: deque[TraceRow] = deque(maxlen=KEPT)

    def observe(self, row: TraceRow) -> None:
        """Take a row of TURNING_KINDS. Of failed requests, only those to a controller are kept."""
        if row.kind == TraceKind.REQUEST_FAILED and not _asks_controller(row):
            return
        self._rows.append(row)

    def led_to(
        self,
        evidence: Sequence[TraceRow],
        *,
        partitions: Collection[str],
        groups: Collection[str],
        faults: Iterable[TraceRow],
    ) -> tuple[TraceRow, ...]:
        """Return the events that may have led to a finding, in time order.

        - `evidence`: the rows of the finding, in time order.
        - `partitions`, `groups`: what the finding is about; rows about others are left out.
        - `faults`: the first row of each fault that was in force at the first row of `evidence` or
          later.

        The events are taken from the time between the first of these faults and the last row of
        `evidence`. If the same event is repeated, such as a failed request, only the last one is
        returned.
        """
        if not evidence:
            return ()
        last_us = evidence[-1].time_us
        began = [row for row in faults if row.time_us <= last_us]
        begin_us = min(row.time_us for row in (*began, evidence[0]))
        known = {_place(row) for row in evidence}  # rows that the finding shows already
        faults_by_cause: dict[tuple[object, ...], TraceRow] = {}
        others: dict[tuple[object, ...], TraceRow] = {}
        for row in self._rows:
            if not begin_us <= row.time_us <= last_us or _place(row) in known:
                continue
            if row.kind in _FAULTS:
                faults_by_cause[row.kind, row.cause] = row
            elif _concerns(row, partitions, groups):
                subject = (row.kind, row.node, row.peer, row.partition, row.group, row.api)
                # Without the pop, the new row would take the place of the old one, not the last.
                others.pop(subject, None)
                others[subject] = row
        chosen = [
            *list(faults_by_cause.values())[-MOST_FAULTS:],
            *list(others.values())[-MOST_OTHERS:],
        ]
        return tuple(sorted(chosen, key=_place))


def _asks_controller(row: TraceRow) -> bool:
    return row.peer is not None and row.peer.startswith(_CONTROLLERS)


def _concerns(row: TraceRow, partitions: Collection[str], groups: Collection[str]) -> bool:
    """Return False if a row is about another partition or group than those given."""
    if row.kind in _OF_PARTITIONS:
        return row.partition in partitions
    if row.kind in _OF_GROUPS:
        return row.group in groups
    return True


def _place(row: TraceRow) -> tuple[int, str, int, int]:
    """Return a key that orders rows by their times. No two rows have the same key."""
    return (row.time_us, row.node, row.incarnation, row.seq)
