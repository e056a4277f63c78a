"""LeaveGroup (13), v0 to v5: members leave, or an administrator removes static members.

From v3 on a request may name several members. v5 adds a reason for each member.

Source: Kafka `GroupCoordinator.handleLeaveGroup`, `LeaveGroupResponse`;
docs/kafka/BEHAVIOUR.md 2.5.
"""

from coordinator.group import Group
from coordinator.rebalance import reason_of_client, remove_member, remove_pending_member
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.turn import Turn
from coordinator.validation import check_current_member
from protocol.causes import RebalanceCause, RemovalCause
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

BATCH_VERSION = 3
"""First version in which a request may name several members, and the answer has an error for each
member. In older versions the answer has only one error."""


def handle_leave_group(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: LeaveGroupRequest,
    api_version: int,
) -> None:
    """Answer a LeaveGroup.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.

    Raises: UnknownServerError if the removal of a member ends a join phase, and the next generation
        cannot begin.
    """
    turn.reply(request_id, for_version(_leave(turn, shard, request), api_version))


def for_version(response: LeaveGroupResponse, api_version: int) -> LeaveGroupResponse:
    """Return `response` in the form that `api_version` has.

    Before v3, an answer has one error and no list of members. For example, in v2 the answer for an
    unknown member is just UNKNOWN_MEMBER_ID.
    """
    if api_version >= BATCH_VERSION:
        return response
    # The request names one member, whose error is in `members`. But if the whole request was
    # refused, the error is in `error_code`, and `members` is empty. So at most one of these errors
    # is not NONE.
    errors = (response.error_code, *(member.error_code for member in response.members))
    first = next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
    return LeaveGroupResponse(error_code=first)


def _leave(turn: Turn, shard: Shard | ErrorCode, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove the members that a request names, and return the answer in the newest version."""
    if isinstance(shard, ErrorCode):
        return LeaveGroupResponse(error_code=shard)
    group = shard.groups.get(request.group_id)
    if group is None:
        return LeaveGroupResponse(
            members=tuple(
                _answer(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members
            )
        )
    if group.state is GroupState.DEAD:
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return LeaveGroupResponse(
        members=tuple(
            _answer(identity, _leave_one(turn, group, identity)) for identity in request.members
        )
    )


def _leave_one(turn: Turn, group: Group, identity: MemberIdentity) -> ErrorCode:
    """Remove a member or a pending id, and return the error for it. NONE means success."""
    member_id, instance = identity.member_id, identity.group_instance_id
    if not member_id:
        # An administrator wants to remove a static member, of which only the instance id is known.
        # `current` is the member id that belongs to this instance id now.
        current = None if instance is None else group.static_members.get(instance)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current
    elif member_id in group.pending_members:
        remove_pending_member(turn, group, member_id, cause=RemovalCause.LEAVE)
        return ErrorCode.NONE
    else:
        error = check_current_member(group, member_id, instance)
        if error is not ErrorCode.NONE:
            return error
    remove_member(
        turn,
        group,
        group.members[member_id],
        cause=RemovalCause.LEAVE,
        reason=reason_of_client(
            RebalanceCause.LEAVE,
            f"member {member_id} left",
            member_id=member_id,
            client_reason=identity.reason,
        ),
    )
    return ErrorCode.NONE


def _answer(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=error,
    )
