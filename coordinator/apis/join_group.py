"""JoinGroup (11), v0 to v9: a client becomes a member of a group, or a member rejoins.

A JoinGroup usually begins a rebalance, or takes part in one. The coordinator then parks the
request, that is, keeps the request without an answer until the join phase ends. The answer tells
the member the new generation. `_join_without_member_id` handles requests without a member id, from
new clients and from restarted static members (members with a `group.instance.id`).
`_join_with_member_id` handles the other requests. Both change the group directly. Replies and
timers go through the turn, which is the handling of this one request.

Versions: v1 adds the rebalance timeout. Since v4 a client without an instance id must join twice:
the first request is answered with MEMBER_ID_REQUIRED and a member id, and the client joins again
with this id (KIP-394). Until then the id is called pending. v5 adds static members (KIP-345), v8
the client's reason (KIP-800), and v9 lets the leader skip the assignment (KIP-814).

Source: Kafka `GroupCoordinator.handleJoinGroup`, `doNewMemberJoinGroup`,
`doCurrentMemberJoinGroup`, `addMemberAndRebalance`; docs/kafka/BEHAVIOUR.md 2.2.
"""

from dataclasses import dataclass

from coordinator.delayed import (
    cancel_heartbeat,
    schedule_new_member_timer,
    schedule_pending_member_timer,
)
from coordinator.errors import UnknownServerError
from coordinator.group import Group
from coordinator.member import Member, ParkedJoin
from coordinator.rebalance import (
    drop_member,
    maybe_prepare_rebalance,
    reason_of_client,
    try_complete_join,
)
from coordinator.replies import current_generation, join_error, join_response
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.static_member import replace_static_member
from coordinator.turn import Turn
from coordinator.validation import check_current_member
from protocol.causes import RebalanceCause, RemovalCause
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupRequest
from protocol.trace import TraceEvent, TraceKind

MEMBER_ID_REQUIRED_VERSION = 4
"""First version in which a client without an instance id must join twice, the second time with the
member id from the first answer."""
_WHAT_MEMBER_DID = {
    # These texts are parts of sentences, such as "member c-1 (leader) rejoined". Only the leader's
    # rejoin starts a rebalance. A follower that rejoins unchanged starts no rebalance.
    RebalanceCause.REJOIN: "(leader) rejoined",
    RebalanceCause.CHANGED_METADATA: "changed its metadata",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup with the fields of its envelope that the handler needs.

    The envelope has the fields of the request's header, and the host of the client.
    """

    request: JoinGroupRequest
    request_id: RequestId
    api_version: int
    client_id: str
    client_host: str

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for this member. In v0 this is the session timeout."""
        if self.api_version == 0:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms

    @property
    def requires_known_member_id(self) -> bool:
        """True if a request without a member id is only answered with an id.

        The client then joins again, with this id.
        """
        return (
            self.api_version >= MEMBER_ID_REQUIRED_VERSION
            and self.request.group_instance_id is None
        )

    def park(self) -> ParkedJoin:
        """Return the part of the request that a member keeps until the answer."""
        return ParkedJoin(request_id=self.request_id, api_version=self.api_version)


def handle_join_group(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: JoinGroupRequest,
    envelope: RequestEnvelope,
) -> None:
    """Answer or park a JoinGroup.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.

    Raises: UnknownServerError in the cases in which Kafka's handler throws an exception.
    """
    join = Join(
        request=request,
        request_id=request_id,
        api_version=envelope.api_version,
        client_id=envelope.client_id,
        client_host=envelope.client_host,
    )
    if isinstance(shard, ErrorCode):
        _refuse(turn, join, request.member_id, shard)
        return

    config = turn.config
    if not (
        config.group_min_session_timeout_ms
        <= request.session_timeout_ms
        <= config.group_max_session_timeout_ms
    ):
        _refuse(turn, join, request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        return

    group = shard.groups.get(request.group_id)
    if group is None:
        # Only a client without a member id creates a group. This client has an id, from a group
        # that is gone. The error makes it drop the id and join again.
        if request.member_id:
            _refuse(turn, join, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        group = shard.create_group(request.group_id, turn.now_us)

    if not _accepts(group, request.member_id, config.group_max_size):
        # The answer has an empty member id, so the client does not use its old id again. If the old
        # member stayed in the group, the join phase would wait for this member in vain.
        _evict(turn, group, request.member_id)
        _refuse(turn, join, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif request.member_id:
        _join_with_member_id(turn, group, join)
    else:
        _join_without_member_id(turn, group, join)

    # Perhaps the join phase waited only for this request, or for the member that was evicted above.
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete_join(turn, group)


def _accepts(group: Group, member_id: str, group_max_size: int) -> bool:
    """Return True if group.max.size leaves room for the member.

    Pending member ids take no room.
    """
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True  # a Dead group is refused later, with COORDINATOR_NOT_AVAILABLE
        case GroupState.PREPARING_REBALANCE:
            # Only members whose JoinGroup is parked take up room here. A group may have become too
            # large because group.max.size was lowered. Then the members that rejoin first stay. For
            # example, in a group of four members with a maximum of two, the third and the fourth
            # member to rejoin are refused.
            member = group.members.get(member_id)
            is_parked = member is not None and member.awaiting_join is not None
            return is_parked or group.members_awaiting_join < group_max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.members or len(group.members) < group_max_size


def _evict(turn: Turn, group: Group, member_id: str) -> None:
    """Remove the member, or the pending member id, of a client that the full group refused."""
    member = group.members.get(member_id)
    if member is not None:
        drop_member(turn, group, member, cause=RemovalCause.GROUP_MAX_SIZE)
    elif member_id in group.pending_members:
        group.remove(member_id)
        cancel_heartbeat(turn, group, member_id)


def _join_without_member_id(turn: Turn, group: Group, join: Join) -> None:
    """Handle a JoinGroup of a client that has no member id yet."""
    request = join.request
    if group.state is GroupState.DEAD:
        _refuse(turn, join, "", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    if not _is_supported(group, request):
        _refuse(turn, join, "", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return

    instance = request.group_instance_id
    prefix = join.client_id if instance is None else instance
    member_id = f"{prefix}-{turn.new_uuid()}"
    if instance is not None and instance in group.static_members:
        replace_static_member(
            turn,
            group,
            parked=join.park(),
            group_instance_id=instance,
            old_member_id=group.static_members[instance],
            new_member_id=member_id,
            protocols=request.protocols,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            client_reason=request.reason,
        )
    elif join.requires_known_member_id:
        # Why must the client join twice (KIP-394)? If one request were enough:
        # 1. A client joins and becomes a member. The answer, with its member id, gets lost.
        # 2. The client joins again, without a member id, and becomes a second member.
        # 3. Nobody uses the first member id, but the group waits for the first member.
        # So the first request only leaves a pending id. A join phase waits for a pending id, too,
        # but only for one session timeout.
        group.add_pending_member(member_id)
        schedule_pending_member_timer(turn, group, member_id, request.session_timeout_ms)
        _refuse(turn, join, member_id, ErrorCode.MEMBER_ID_REQUIRED)
    else:
        _add_member_and_rebalance(turn, group, join, member_id)


def _join_with_member_id(turn: Turn, group: Group, join: Join) -> None:
    """Handle a JoinGroup with a member id: a pending id, or the id of a member that rejoins."""
    request = join.request
    member_id = request.member_id
    if group.state is GroupState.DEAD:
        _refuse(turn, join, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    if not _is_supported(group, request):
        _refuse(turn, join, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    if member_id in group.pending_members:
        if request.group_instance_id is not None:
            # Only clients without an instance id get pending ids. Kafka throws an exception here.
            raise UnknownServerError(f"pending id {member_id} cannot be of a static member")
        _add_member_and_rebalance(turn, group, join, member_id)
        return

    error = check_current_member(group, member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        _refuse(turn, join, member_id, error)
        return
    member = group.members[member_id]
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            # A rebalance is running, so the call starts none: it updates the member and parks the
            # request.
            _update_member_and_rebalance(turn, group, join, member, RebalanceCause.REJOIN)
        case GroupState.COMPLETING_REBALANCE:
            if member.matches(request.protocols):
                # Presumably the answer to the member's last JoinGroup got lost: send it again.
                turn.reply(join.request_id, current_generation(group, member_id))
            else:
                _update_member_and_rebalance(
                    turn, group, join, member, RebalanceCause.CHANGED_METADATA
                )
        case GroupState.STABLE:
            if group.is_leader(member_id):
                # The leader rejoins because it wants a new assignment, for example after its
                # metadata showed more partitions.
                _update_member_and_rebalance(turn, group, join, member, RebalanceCause.REJOIN)
            elif not member.matches(request.protocols):
                _update_member_and_rebalance(
                    turn, group, join, member, RebalanceCause.CHANGED_METADATA
                )
            else:
                # A follower without a change needs no rebalance: it gets the current generation.
                turn.reply(
                    join.request_id,
                    join_response(group, member_id, leader_id=group.leader_id, members=()),
                )
        case GroupState.EMPTY | GroupState.DEAD:
            # Not reached: Dead was refused above, and an Empty group has no members. The states are
            # listed because Kafka lists them.
            _refuse(turn, join, member_id, ErrorCode.UNKNOWN_MEMBER_ID)


def _add_member_and_rebalance(turn: Turn, group: Group, join: Join, member_id: str) -> None:
    """Add a new member, park its JoinGroup, and start a rebalance."""
    request = join.request
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        supported_protocols=request.protocols,
        is_new=True,
    )
    # The first join phase of a new group lasts for a delay, and each member that joins during the
    # delay extends it. A group is in this phase if it prepares its first generation. The first
    # member does not extend the delay: its JoinGroup finds the group Empty and begins the delay.
    if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
        group.new_member_added = True
    group.add(member, join.park())
    schedule_new_member_timer(turn, group, member)
    turn.trace(
        TraceEvent(
            kind=TraceKind.MEMBER_ADDED,
            group=group.group_id,
            member=member_id,
            generation=group.generation_id,
            detail={"client_id": member.client_id, "instance": member.group_instance_id},
        )
    )
    maybe_prepare_rebalance(
        turn,
        group,
        reason_of_client(
            RebalanceCause.JOIN,
            f"member {member_id} joined",
            member_id=member_id,
            client_reason=request.reason,
        ),
    )


def _update_member_and_rebalance(
    turn: Turn, group: Group, join: Join, member: Member, cause: RebalanceCause
) -> None:
    """Store a member's new protocols, park its JoinGroup, and start a rebalance if none runs."""
    group.update_member(
        member,
        join.request.protocols,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        session_timeout_ms=join.request.session_timeout_ms,
        parked=join.park(),
    )
    maybe_prepare_rebalance(
        turn,
        group,
        reason_of_client(
            cause,
            f"member {member.member_id} {_WHAT_MEMBER_DID[cause]}",
            member_id=member.member_id,
            client_reason=join.request.reason,
        ),
    )


def _is_supported(group: Group, request: JoinGroupRequest) -> bool:
    """Return True if the client and the other members have a protocol in common."""
    names = tuple(protocol.name for protocol in request.protocols)
    return group.supports_protocols(request.protocol_type, names)


def _refuse(turn: Turn, join: Join, member_id: str, error: ErrorCode) -> None:
    """Answer the request with `error`, and with `member_id` in the answer's field of this name."""
    turn.reply(join.request_id, join_error(member_id, error, join.api_version))
