"""What led to a finding: faults, elections, fencing, loads and unloads, requests without answer.

A finding's evidence proves what happened; these rows, of the time before it and around it, tell why
it could happen.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from protocol.ids import controller_name
from protocol.trace import TraceKind, TraceRow

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
"""The rows that TurningPoints must see."""
KEPT = 512
"""Rows: some minutes of a small cluster."""
MOST_FAULTS, MOST_OTHERS = 4, 8
"""Of what led to a finding the last ones are kept: more would have to be read twice."""
_CONTROLLERS = controller_name(0).removesuffix("0")


class TurningPoints:
    """Remembers the last rows that may have led to what is found later."""

    def __init__(self) -> None:
        self._rows: deque[TraceRow] = deque(maxlen=KEPT)

    def observe(self, row: TraceRow) -> None:
        """Take in a row of TURNING_KINDS; of failed requests those to the controller count."""
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
        """Return what led to a finding, in time order: at most MOST_FAULTS and MOST_OTHERS rows.

        Shape: `evidence` is the finding's, in time order; `partitions` and `groups` are those that
        it is about; `faults` began before it and were in force at its first row or since.
        The time that counts begins with the first of these faults. Of rows that say the same of the
        same node the last one stays.
        """
        if not evidence:
            return ()
        last_us = evidence[-1].time_us
        began = [row for row in faults if row.time_us <= last_us]
        begin_us = min(row.time_us for row in (*began, evidence[0]))
        known = {_place(row) for row in evidence}
        shown_faults: dict[tuple[object, ...], TraceRow] = {}
        others: dict[tuple[object, ...], TraceRow] = {}
        for row in self._rows:
            if not begin_us <= row.time_us <= last_us or _place(row) in known:
                continue
            if row.kind in _FAULTS:
                shown_faults[row.kind, row.cause] = row
            elif _concerns(row, partitions, groups):
                what = (row.kind, row.node, row.peer, row.partition, row.group, row.api)
                others.pop(what, None)
                others[what] = row
        chosen = [
            *list(shown_faults.values())[-MOST_FAULTS:],
            *list(others.values())[-MOST_OTHERS:],
        ]
        return tuple(sorted(chosen, key=_place))


def _asks_controller(row: TraceRow) -> bool:
    return row.peer is not None and row.peer.startswith(_CONTROLLERS)


def _concerns(row: TraceRow, partitions: Collection[str], groups: Collection[str]) -> bool:
    """Whether a row is about one of them, or about brokers and the controller."""
    if row.kind in _OF_PARTITIONS:
        return row.partition in partitions
    if row.kind in _OF_GROUPS:
        return row.group in groups
    return True


def _place(row: TraceRow) -> tuple[int, str, int, int]:
    return (row.time_us, row.node, row.incarnation, row.seq)
