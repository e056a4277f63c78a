"""The living consumers of each group, and the state that each consumer has reported last.

A consumer counts as present from its start to its death, and as absent otherwise. The consumers
with which a run begins count as present even before their start. The consumers that the run starts
later (`late`) are absent until their start.
"""

from chaos.checkers.context import CheckContext, detail_of
from protocol.trace import TraceKind, TraceRow

PRESENCE_KINDS = frozenset(
    {
        TraceKind.NODE_STARTED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
        TraceKind.MEMBER_STATE,
    }
)
"""Kinds of rows that Presence must see."""
JOINING = "PREPARING_REBALANCE"
"""State of a member that has sent JoinGroup, and waits for the answer."""
_STABLE = "STABLE"  # a member's state; the state of a group is "Stable"


class Presence:
    """Follows the lives of all consumers."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._group_of = {
            consumer: group_id
            for group_id, expected in context.groups.items()
            for consumer in expected.consumers
        }
        # consumer -> True if it is absent, False if it is present. A consumer without an entry has
        # not started yet, and counts as present.
        self._absent = {
            consumer: True for expected in context.groups.values() for consumer in expected.late
        }
        self._states: dict[str, TraceRow] = {}  # consumer -> its last MEMBER_STATE in this life

    def observe(self, row: TraceRow) -> None:
        """Take a row of PRESENCE_KINDS."""
        # If the driver of the run wrote the row, `peer` is the node that was started or has ended.
        node = row.peer or row.node
        if node not in self._group_of:
            return
        if row.kind == TraceKind.MEMBER_STATE:
            self._states[node] = row
        else:
            self._absent[node] = row.kind != TraceKind.NODE_STARTED
            self._states.pop(node, None)

    def group_of(self, node: str) -> str | None:
        """Return the group of a consumer, None for any other node."""
        return self._group_of.get(node)

    def present(self, group_id: str) -> list[str]:
        """Return the present consumers of a group."""
        expected = self._context.groups[group_id]
        return [consumer for consumer in expected.consumers if not self._absent.get(consumer)]

    def state_row(self, consumer: str) -> TraceRow | None:
        """Return the last MEMBER_STATE of the consumer's present process; None before the first."""
        return self._states.get(consumer)

    def state(self, consumer: str) -> str | None:
        """Return the state in the row of `state_row`, such as "STABLE"; None without a row."""
        row = self._states.get(consumer)
        return None if row is None else detail_of(row).get("to")

    def is_stable(self, consumer: str) -> bool:
        """Return True if the consumer has reported that it has its assignment."""
        return self.state(consumer) == _STABLE

    def is_unseen(self, consumer: str) -> bool:
        """Return True if a consumer with which the run begins has no row yet, not even a start."""
        return consumer not in self._absent and consumer not in self._states

    def stable_as(self, member: str | None) -> TraceRow | None:
        """Return the row with which a consumer reported that it is stable with the id `member`.

        Return None if no consumer is stable with this member id now.
        """
        return next(
            (
                row
                for consumer, row in self._states.items()
                if row.member == member and self.is_stable(consumer)
            ),
            None,
        )

    @property
    def absent_total(self) -> int:
        """Number of absent consumers."""
        return sum(self._absent.values())
