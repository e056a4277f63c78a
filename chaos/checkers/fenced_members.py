"""Static members that a failover fenced: the id that they have was never stored.

A static member that comes back gets a new member id. Unless the group is Stable, the id is written
only with the group's next assignment; a coordinator that takes over before that loads the old id,
and answers the new one FENCED_INSTANCE_ID, which ends the application. Kafka 3.9 does so: its
JoinGroup cannot tell the rightful owner from an impostor (BEHAVIOUR 2.2; standard space, seed 326).
"""

from dataclasses import dataclass, field

from chaos.checkers.base import detail_of
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
    """Who gave which id, and which coordinators loaded the group without it."""

    added: dict[str, TraceRow] = field(default_factory=dict)  # member -> its MEMBER_ADDED
    unknown_to: dict[str, TraceRow] = field(default_factory=dict)  # member -> a GROUP_LOADED


class FencedMembers:
    """Follows the ids of members, and who was fenced because a failover had lost theirs."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._loads: dict[str, dict[str, TraceRow]] = {}  # group -> broker -> its last load
        self._fenced: dict[str, TraceRow] = {}  # consumer -> the end of its application

    def observe(self, row: TraceRow) -> None:
        """Take in a row of FENCING_KINDS."""
        if row.kind == TraceKind.NODE_STARTED:
            self._fenced.pop(row.node, None)
            return
        group = self._groups.setdefault(row.group or "", _Group())
        member = row.member or ""
        match row.kind:
            case TraceKind.MEMBER_ADDED:
                group.added[member] = row
                for load in self._loads.get(row.group or "", {}).values():
                    if load.node != row.node:  # of two coordinators the other one gave the id
                        group.unknown_to.setdefault(member, load)
            case TraceKind.GROUP_LOADED:
                self._loads.setdefault(row.group or "", {})[row.node] = row
                members = detail_of(row).get("members")
                if isinstance(members, list):
                    for known in group.added:
                        if known not in members:
                            group.unknown_to[known] = row
            case TraceKind.MEMBER_STATE if ErrorCode.FENCED_INSTANCE_ID.name in (row.cause or ""):
                if member in group.unknown_to:
                    self._fenced[row.node] = row
            case _:
                pass

    def stopped(self, consumer: str) -> bool:
        """Whether the consumer's application has ended because a failover lost its member id."""
        return consumer in self._fenced
