"""Events that may have led to a finding: faults, elections, fencing, loads, unloads, failures.

A finding is a violation that a checker reports. The finding's own evidence proves what happened.
The rows that this module keeps, from the time before and around it, show how it became possible.
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
"""Number of kept rows: some minutes of a small cluster."""
MOST_FAULTS, MOST_OTHERS = 4, 8
"""Limits of the events shown with a finding, because a longer list would be hard to read.

If there are more, the last ones are shown.
"""
_CONTROLLERS = controller_name(0).removesuffix("0")  # the beginning of every controller's name


class TurningPoints:
    """Keeps the last rows that may have led to a later finding."""

    def __init__(self) -> None:
        self._rows: deque[TraceRow] = deque(maxlen=KEPT)

    def observe(self, row: TraceRow) -> None:
        """Take a row of TURNING_KINDS; of failed requests only those to a controller count."""
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
        """Return the events before a finding, in time order: MOST_FAULTS and MOST_OTHERS at most.

        - `evidence`: the rows of the finding, in time order.
        - `partitions`, `groups`: the partitions and groups that the finding is about.
        - `faults`: the row of the beginning of each fault that was in force at the first row of
          `evidence` or later. The relevant time begins with the first of these rows.

        Of rows that differ only in their times, the last one is returned.
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
                others.pop(subject, None)  # so that the new row takes the last place
                others[subject] = row
        chosen = [
            *list(faults_by_cause.values())[-MOST_FAULTS:],
            *list(others.values())[-MOST_OTHERS:],
        ]
        return tuple(sorted(chosen, key=_place))


def _asks_controller(row: TraceRow) -> bool:
    return row.peer is not None and row.peer.startswith(_CONTROLLERS)


def _concerns(row: TraceRow, partitions: Collection[str], groups: Collection[str]) -> bool:
    """Return True if a row is about one of `partitions` or `groups`, or is of another kind."""
    if row.kind in _OF_PARTITIONS:
        return row.partition in partitions
    if row.kind in _OF_GROUPS:
        return row.group in groups
    return True


def _place(row: TraceRow) -> tuple[int, str, int, int]:
    """Return the place of a row in the trace's order, which also identifies the row."""
    return (row.time_us, row.node, row.incarnation, row.seq)
