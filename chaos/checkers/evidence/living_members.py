"""Which consumers of a group are there: not those that are dead, or that the run starts later."""

from chaos.checkers.base import CheckContext
from protocol.trace import TraceKind, TraceRow

PRESENCE_KINDS = frozenset({TraceKind.NODE_STARTED, TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED})
"""The rows that Presence must see."""


class Presence:
    """Follows the lives of all consumers."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._group_of = {
            consumer: group_id
            for group_id, expected in context.groups.items()
            for consumer in expected.consumers
        }
        self._absent = {
            consumer: True for expected in context.groups.values() for consumer in expected.late
        }

    def observe(self, row: TraceRow) -> str | None:
        """Take in a row of PRESENCE_KINDS; return the group of the consumer that it is about."""
        node = row.peer or row.node
        group_id = self._group_of.get(node)
        if group_id is not None:
            self._absent[node] = row.kind != TraceKind.NODE_STARTED
        return group_id

    def group_of(self, node: str) -> str | None:
        """Return the group of a consumer, None for any other node."""
        return self._group_of.get(node)

    def present(self, group_id: str) -> list[str]:
        """Return the consumers of a group that are there."""
        expected = self._context.groups[group_id]
        return [consumer for consumer in expected.consumers if not self._absent.get(consumer)]

    @property
    def absent_total(self) -> int:
        """How many consumers are not there."""
        return sum(self._absent.values())
