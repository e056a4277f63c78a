"""Static members that were fenced after a failover, because their new member id was never stored.

A static member has a `group.instance.id`, with which it keeps its place in the group when it
restarts. If two processes have the same instance id, the coordinator accepts only one of them and
fences the other process: it answers with the error FENCED_INSTANCE_ID. The application of the
fenced process ends then. In Kafka 3.9 the wrong process may be fenced, because JoinGroup cannot
tell the rightful owner of an instance id from an impostor (section 2.2 of
docs/kafka/BEHAVIOUR.md):

1. A static member restarts while a rebalance is in progress, and gets a new member id. The
   coordinator will store the new id with the next assignment.
2. Before that assignment, another coordinator takes over. It loads the group with the old id.
3. The member sends a request with its new id. The new coordinator takes it for an impostor.

The same may happen in a split brain, in which two brokers act as the coordinator. The coordinator
that was replaced knows only the old id, so it may fence the member, too. Two schedules of the
tests' corpus show these cases: `static_member_whose_new_id_was_never_stored` and
`static_member_fenced_by_a_replaced_coordinator`.

The application may notice the error much later, because it is busy. By then the broker that has
fenced the member may have loaded the group with the new id. So FencedMembers also looks back: it is
enough if a broker lacked the id at some time since a coordinator last accepted a request under the
id. The schedule `static_member_hears_late_that_it_was_fenced` shows this case.

Kafka does not allow such a fencing if the member has been Stable with the new id. An id with which
a member is Stable has been stored: with the assignment, or by a separate append, which the
coordinator awaits before it answers. If the group's present coordinator has loaded the group
without such an id, its load was wrong. So it must not fence the member, unless the group's
partition lost data (`lost_data`).
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
        TraceKind.SESSION_RESTARTED,
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
    # id -> last time at which a broker that had lacked the id loaded the group anew. Only a broker
    # that Kafka allowed to lack the id counts here.
    lacked_until_us: dict[str, int] = field(default_factory=dict)
    # id -> time at which a coordinator last accepted a request under the id
    heard_us: dict[str, int] = field(default_factory=dict)


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
                    self._compare_with_load(group, row, members)
            case TraceKind.SESSION_RESTARTED:
                group.heard_us[member] = row.time_us
            case TraceKind.MEMBER_STATE if row.error == ErrorCode.FENCED_INSTANCE_ID.name:
                if self._was_lost_legally(group, row.group or "", member):
                    self._fenced[row.node] = None
            case TraceKind.MEMBER_STATE if detail_of(row).get("to") == _STABLE:
                group.stable[member] = None
            case _:
                pass

    def _compare_with_load(self, group: _Group, load: TraceRow, members: list[str]) -> None:
        """Compare the ids that a broker has loaded with all ids that were given."""
        broker = load.node
        for member in group.added:
            lacking = group.lacking.setdefault(member, {})
            was_stable = lacking.pop(broker, None)  # None: until this load the broker had the id
            if was_stable is not None and self._may_lack(load.group or "", broker, was_stable):
                group.lacked_until_us[member] = load.time_us
            if member not in members:
                lacking[broker] = member in group.stable

    def _was_lost_legally(self, group: _Group, group_id: str, member: str) -> bool:
        """Return True if some broker lacks the id, as Kafka allows.

        It is also enough that a broker lacked the id for some time after the last accepted request
        under the id, even if this broker has loaded the group anew since then.
        """
        if any(
            self._may_lack(group_id, broker, was_stable)
            for broker, was_stable in group.lacking.get(member, {}).items()
        ):
            return True
        lacked_until_us = group.lacked_until_us.get(member)
        heard_us = group.heard_us.get(member, -1)
        return (
            lacked_until_us is not None
            and heard_us <= lacked_until_us + self._context.clock_error_us
        )

    def _may_lack(self, group_id: str, broker: str, was_stable: bool) -> bool:
        """Return True if Kafka allows that a broker has the group without a certain id.

        Kafka allows it if no member had been Stable with the id, if the broker is not the
        coordinator, or if the partition lost data. `was_stable`: a member had been Stable with the
        id before the broker loaded the group.
        """
        is_coordinator = broker == self._coordinators.coordinator(group_id)
        has_lost_data = self._lost_data.of(self._context.groups[group_id].offsets_partition)
        return not was_stable or not is_coordinator or bool(has_lost_data)

    def stopped(self, consumer: str) -> bool:
        """Return True if the consumer's application ended because a failover lost its member id."""
        return consumer in self._fenced
