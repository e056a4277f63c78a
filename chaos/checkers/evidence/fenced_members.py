"""Static members that were fenced after a failover, because their new id was never stored.

A static member has a `group.instance.id`, with which it keeps its place in the group when it
restarts. If two processes have the same instance id, the coordinator accepts only one of them and
fences the other, with the error FENCED_INSTANCE_ID. This ends its application. In Kafka 3.9 the
wrong one may be fenced, because JoinGroup cannot tell the rightful owner from an impostor (section
2.2 of docs/kafka/BEHAVIOUR.md):

1. A static member restarts while a rebalance is in progress, and gets a new member id. The
   coordinator will store the id with the next assignment.
2. Before that assignment, another coordinator takes over. It loads the group with the old id.
3. The member sends a request with its new id. The new coordinator takes it for an impostor.

In a split brain, in which two brokers act as the coordinator, the replaced one may do the same: it
knows only the old id. Two schedules of the tests' corpus show these cases:
`static_member_whose_new_id_was_never_stored` and
`static_member_fenced_by_a_replaced_coordinator`.

Kafka does not allow this for an id with which the member has been Stable. Such an id is stored:
with the assignment, or by an append of its own, which the coordinator awaits before it answers. If
the group's present coordinator has loaded the group without such an id, it must not fence the
member, unless the partition lost data (`lost_data`).
"""

from dataclasses import dataclass, field

from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.coordinators import CoordinatorView
from chaos.checkers.evidence.lost_data import LostData
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
"""Kinds of rows that FencedMembers must see."""
_STABLE = "STABLE"  # a member's state; the state of a group is "Stable"


@dataclass(slots=True)
class _Group:
    """Member ids of one group, and the brokers that lack them."""

    added: dict[str, None] = field(default_factory=dict)  # all ids that coordinators have given
    stable: dict[str, None] = field(default_factory=dict)  # ids with which a member was Stable
    # id -> each broker that has the group without it. The value is True if the broker loaded the
    # group without the id although a member had been Stable with it, which Kafka does not allow.
    lacking: dict[str, dict[str, bool]] = field(default_factory=dict)


class FencedMembers:
    """Follows member ids, and finds members that were fenced because a failover lost their id.

    The caller feeds rows to `coordinators` and `lost_data`.
    """

    def __init__(
        self, context: CheckContext, coordinators: CoordinatorView, lost_data: LostData
    ) -> None:
        self._context = context
        self._groups = {group_id: _Group() for group_id in context.groups}
        self._coordinators = coordinators
        self._lost_data = lost_data
        self._fenced: dict[str, None] = {}  # consumers whose application has ended

    def observe(self, row: TraceRow) -> None:
        """Take a row of FENCING_KINDS."""
        match row.kind:
            case TraceKind.NODE_STARTED:
                self._fenced.pop(row.node, None)
            case _:
                if row.group in self._groups:
                    self._follow_group(self._groups[row.group], row)

    def _follow_group(self, group: _Group, row: TraceRow) -> None:
        """Note the ids that were given or loaded, or that became Stable, and the fenced members."""
        member = row.member or ""
        match row.kind:
            case TraceKind.MEMBER_ADDED:
                # All other brokers that have the group in memory, such as a replaced coordinator,
                # lack the new id.
                group.added[member] = None
                for broker in self._coordinators.holders(row.group or ""):
                    if broker != row.node:
                        group.lacking.setdefault(member, {})[broker] = False
            case TraceKind.GROUP_LOADED:
                members = detail_of(row).get("members")
                if isinstance(members, list):
                    self._compare_with_load(group, row.node, members)
            case TraceKind.MEMBER_STATE if row.error == ErrorCode.FENCED_INSTANCE_ID.name:
                if self._was_lost_legally(group, row.group or "", member):
                    self._fenced[row.node] = None
            case TraceKind.MEMBER_STATE if detail_of(row).get("to") == _STABLE:
                group.stable[member] = None
            case _:
                pass

    def _compare_with_load(self, group: _Group, broker: str, members: list[str]) -> None:
        """Compare the ids that a broker has loaded with all ids that were given."""
        for member in group.added:
            if member in members:
                group.lacking.get(member, {}).pop(broker, None)
            else:
                group.lacking.setdefault(member, {})[broker] = member in group.stable

    def _was_lost_legally(self, group: _Group, group_id: str, member: str) -> bool:
        """Return True if some broker lacks the id, and Kafka allows this.

        Kafka allows it if no member had been Stable with the id, if the broker is not the
        coordinator, or if the partition lost data.
        """
        lacking = group.lacking.get(member, {})
        if self._lost_data.of(self._context.groups[group_id].offsets_partition):
            return bool(lacking)
        coordinator = self._coordinators.coordinator(group_id)
        return any(
            not was_stable or broker != coordinator for broker, was_stable in lacking.items()
        )

    def stopped(self, consumer: str) -> bool:
        """Return True if the consumer's application ended because a failover lost its member id."""
        return consumer in self._fenced
