"""Events that may have led to a finding, such as faults, elections, fencing, loads and rebalances.

A finding is a violation that a checker reports. The evidence of a finding consists of the rows of
the trace that prove the violation. Often these rows do not tell how the violation came about. For
example, "offset 20 was lost" does not show that the coordinator changed just before. So a finding
also lists the events that came before its evidence and during its evidence. This module keeps the
rows of such events, and chooses the rows that belong to a finding.
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
"""Number of rows that are kept. A small cluster takes some minutes to write as many rows."""
MOST_FAULTS, MOST_OTHERS = 4, 8
"""Largest numbers of rows about faults, and of other rows, that a finding shows.

If there are more, the newest rows are shown. A longer list would be hard to read.
"""
_CONTROLLERS = controller_name(0).removesuffix("0")  # the beginning of every controller's name


class TurningPoints:
    """Keeps the last rows that may have led to a later finding."""

    def __init__(self) -> None:
        self._rows: deque[TraceRow] = deque(maxlen=KEPT)

    def observe(self, row: TraceRow) -> None:
        """Take a row of TURNING_KINDS. A failed request is kept only if it was to a controller."""
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
        - `partitions`, `groups`: the partitions and groups that the finding is about. Rows about
          other partitions and groups are left out.
        - `faults`: the first row of each fault that was in force at the first row of `evidence` or
          later.

        The events are taken from the time between the first of these faults and the last row of
        `evidence`. If an event is repeated, such as a failed request, only its last occurrence is
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
                faults_by_cause[row.kind, row.cause] = row  # `cause` is the id of the fault
            elif _concerns(row, partitions, groups):
                subject = (row.kind, row.node, row.peer, row.partition, row.group, row.api)
                # A dict keeps the place of a key that is assigned again. After the pop, the new row
                # gets the last place instead of the place of the old row.
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
    """Return False if a row is about a partition or group that is not among those given."""
    if row.kind in _OF_PARTITIONS:
        return row.partition in partitions
    if row.kind in _OF_GROUPS:
        return row.group in groups
    return True


def _place(row: TraceRow) -> tuple[int, str, int, int]:
    """Return a key that orders rows by their times. No two rows have the same key."""
    return (row.time_us, row.node, row.incarnation, row.seq)
