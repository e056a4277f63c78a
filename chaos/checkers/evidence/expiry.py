"""Times since which a group is Empty, by which committed offsets expire.

A coordinator removes a group's offsets when the group was Empty for `offsets.retention.minutes`.
The time counts from the moment at which the group became Empty, also at a coordinator that loads
the group later: its record has the moment. Whatever was removed earlier is a loss.

A group that never had members (only an administrator committed for it) has no such moment: each of
its offsets ages by itself. Such removals are not judged.
Source: Kafka `GroupMetadata.removeExpiredOffsets`; docs/kafka/BEHAVIOUR.md 4.11.
"""

from chaos.checkers.context import CheckContext, detail_of
from protocol.causes import DeletionCause
from protocol.trace import TraceKind, TraceRow

EXPIRY_KINDS = frozenset(
    {
        TraceKind.GROUP_STATE,
        TraceKind.GROUP_LOADED,
        TraceKind.GENERATION_STARTED,
        TraceKind.PARTITIONS_ASSIGNED,
    }
)
"""Kinds of rows that Expiry must see."""
_DELETIONS = frozenset(DeletionCause)
_ROUNDING_US = 1_000
"""Kafka counts ages in milliseconds, of clocks that are rounded down."""


class Expiry:
    """Follows the time since which each broker has each group without members."""

    def __init__(self, context: CheckContext) -> None:
        self._retention_us = context.offsets_retention_us - context.clock_error_us - _ROUNDING_US
        # group -> broker -> time at which the group became Empty there; None: it has members there
        self._empty_us: dict[str, dict[str, int | None]] = {}
        self._had_members: dict[str, None] = {}  # groups

    def observe(self, row: TraceRow) -> None:
        """Take a row of EXPIRY_KINDS."""
        group_id = row.group or ""
        by_broker = self._empty_us.setdefault(group_id, {})
        state = detail_of(row).get("to" if row.kind == TraceKind.GROUP_STATE else "state")
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                self._had_members[group_id] = None
            case TraceKind.GROUP_STATE if state == "Empty":
                by_broker[row.node] = row.time_us
            case TraceKind.GROUP_STATE if state == "Dead":
                if row.cause in _DELETIONS:  # the group begins anew, if it is made again
                    by_broker.clear()
                    self._had_members.pop(group_id, None)
            case TraceKind.GROUP_LOADED if state == "Empty":
                # The record has the time at which another broker emptied the group. If no row has
                # it, any expiry is right.
                times = [time_us for time_us in by_broker.values() if time_us is not None]
                by_broker[row.node] = min(times, default=-self._retention_us)
            case _:
                by_broker[row.node] = None
                self._had_members[group_id] = None

    def is_due(self, row: TraceRow) -> bool:
        """Return True unless an OFFSET_REMOVED by expiry came before the group's retention time."""
        by_broker = self._empty_us.get(row.group or "", {})
        if row.node not in by_broker:
            return row.group not in self._had_members
        empty_us = by_broker[row.node]
        return empty_us is not None and row.time_us - empty_us >= self._retention_us
