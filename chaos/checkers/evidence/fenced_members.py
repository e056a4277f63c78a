"""Static members that a failover fenced: the id that they have was never stored.

A static member that comes back gets a new member id. Unless the group is Stable, the id is written
only with the group's next assignment; a coordinator that takes over before that loads the old id,
and answers the new one FENCED_INSTANCE_ID, which ends the application. Kafka 3.9 does so: its
JoinGroup cannot tell the rightful owner from an impostor (BEHAVIOUR 2.2).
Corpus: `static_member_whose_new_id_was_never_stored`.
In a split brain the replaced coordinator has the old id, and fences a member that asks it again.
Corpus: `static_member_fenced_by_a_replaced_coordinator`.
"""

from dataclasses import dataclass, field

from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.coordinators import CoordinatorView
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow

FENCING_KINDS = frozenset(
    {
        TraceKind.MEMBER_ADDED,
        TraceKind.GROUP_LOADED,
        TraceKind.MEMBER_STATE,
        TraceKind.NODE_STARTED,
    }
)
"""The rows that FencedMembers must see."""


@dataclass(slots=True)
class _Group:
    """Which ids were given, and which of them some coordinator of the group lacks."""

    added: dict[str, None] = field(default_factory=dict)  # members
    unknown: dict[str, None] = field(default_factory=dict)  # members that some coordinator lacks


class FencedMembers:
    """Follows the ids of members, and who was fenced because a failover had lost theirs.

    `coordinators` is kept up to date by the caller.
    """

    def __init__(self, context: CheckContext, coordinators: CoordinatorView) -> None:
        self._groups = {group_id: _Group() for group_id in context.groups}
        self._coordinators = coordinators
        self._fenced: dict[str, None] = {}  # consumers whose application has ended

    def observe(self, row: TraceRow) -> None:
        """Take in a row of FENCING_KINDS."""
        match row.kind:
            case TraceKind.NODE_STARTED:
                self._fenced.pop(row.node, None)
            case _:
                if row.group in self._groups:
                    self._group_step(self._groups[row.group], row)

    def _group_step(self, group: _Group, row: TraceRow) -> None:
        member = row.member or ""
        match row.kind:
            case TraceKind.MEMBER_ADDED:
                group.added[member] = None
                holders = self._coordinators.holders(row.group or "")
                if any(broker != row.node for broker in holders):
                    group.unknown[member] = None
            case TraceKind.GROUP_LOADED:
                members = detail_of(row).get("members")
                if isinstance(members, list):
                    group.unknown.update((m, None) for m in group.added if m not in members)
            case TraceKind.MEMBER_STATE if row.error == ErrorCode.FENCED_INSTANCE_ID.name:
                if member in group.unknown:
                    self._fenced[row.node] = None
            case _:
                pass

    def stopped(self, consumer: str) -> bool:
        """Whether the consumer's application has ended because a failover lost its member id."""
        return consumer in self._fenced
