"""Static members that were fenced after a failover, because their new id was never stored.

A static member has a configured `group.instance.id`, which keeps its place in the group through a
restart. To fence a member means to refuse its requests, because another process has the place.

Kafka 3.9 allows this sequence, because its JoinGroup cannot tell the rightful owner of a
`group.instance.id` from an impostor (BEHAVIOUR 2.2, a section of docs/kafka/BEHAVIOUR.md):
1. A static member that comes back gets a new member id. Unless the group is Stable (no rebalance is
   in progress), the id is written only with the group's next assignment.
2. Before that assignment another coordinator takes over, and loads the old id.
3. The new coordinator answers requests that name the new id with FENCED_INSTANCE_ID. This error
   ends the application.
The same can happen in a split brain (two brokers act as the coordinator): the replaced coordinator
has the old id, and fences a member that sends it a request with the new id. Two schedules of the
corpus (files that the tests play) show the two cases:
`static_member_whose_new_id_was_never_stored` and
`static_member_fenced_by_a_replaced_coordinator`.

If a member was Stable with an id, the id is stored: with the assignment of the generation (one
numbered rebalance of the group), or by an append of its own. Kafka awaits this append before it
gives a static member of a Stable group its new id. So a coordinator that loads the group without
such an id has lost the id. Then the fencing is an error, unless the partition lost data
(`lost_data`) or this coordinator had been replaced itself.
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

    added: dict[str, None] = field(default_factory=dict)  # all ids that a coordinator gave
    stable: dict[str, None] = field(default_factory=dict)  # ids with which a member was Stable
    # id -> broker that lacks it -> True if the id was in `stable` when the broker's load lacked it
    lacking: dict[str, dict[str, bool]] = field(default_factory=dict)


class FencedMembers:
    """Follows member ids, and finds members that were fenced because a failover lost their id.

    The caller keeps `coordinators` and `lost_data` up to date.
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
                # The other brokers that have the group in memory do not have the new id.
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
        """Return True if a broker lacks the id in a way that Kafka allows.

        Kafka allows it if the id was not stored yet, if the broker is not the coordinator any more,
        or if the partition lost data as Kafka allows.
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
