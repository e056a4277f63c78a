"""Heartbeat (12), v0 to v4: restarts a member's session and reports a rebalance to the member.

By default the answer is built from memory alone. A coordinator that is cut off from the cluster may
have been replaced without knowing it. Such a coordinator still answers, so its members do not look
for the new coordinator. Kafka's Java coordinator is safer (switch `heartbeats_wait_for_writes`):
the answer waits until all records that were in the log when the request arrived are committed. At a
coordinator that is cut off, these records may never be committed. Then its members get an error,
and look for the new coordinator.

Source: Kafka `GroupCoordinator.handleHeartbeat`, Java `GroupMetadataManager.classicGroupHeartbeat`;
docs/kafka/BEHAVIOUR.md 2.4.
"""

from typing import TypeGuard

from coordinator.delayed import restart_session
from coordinator.group import Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import HeldHeartbeat
from coordinator.storage.held_writes import hold
from coordinator.turn import Turn
from coordinator.validation import check_current_member, check_generation
from protocol.api import Api
from protocol.config import Guards
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse

# All possible answers. They are built only once, because no request is as frequent as a Heartbeat.
_RESPONSES = {error: HeartbeatResponse(error_code=error) for error in ErrorCode}


def handle_heartbeat(
    turn: Turn, shard: Shard | ErrorCode, request_id: RequestId, request: HeartbeatRequest
) -> None:
    """Answer a Heartbeat.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.
    """
    error = _heartbeat(turn, shard, request)
    if turn.java.heartbeats_wait_for_writes and _waits(shard, error):
        hold(turn, shard, HeldHeartbeat(request_id=request_id, error_code=error))
    else:
        turn.reply(request_id, _RESPONSES[error])


def _waits(shard: Shard | ErrorCode, error: ErrorCode) -> TypeGuard[Shard]:
    """Return True if the answer must wait, because the log has records that are not committed.

    A refusal never waits. The TypeGuard tells the type checker that `shard` is no error if the
    result is True.
    """
    # The handler of the Java coordinator returns only these two codes. It throws all other errors
    # as exceptions, and an exception is answered immediately.
    is_returned = error is ErrorCode.NONE or error is ErrorCode.REBALANCE_IN_PROGRESS
    return isinstance(shard, Shard) and is_returned and not shard.above_high_watermark.is_empty


def _heartbeat(turn: Turn, shard: Shard | ErrorCode, request: HeartbeatRequest) -> ErrorCode:
    """Restart the member's session if the request is valid. Return the error of the answer."""
    if isinstance(shard, ErrorCode):
        # While the partition is loading, it is not known yet whether the member is in the group.
        # Probably the member is in the group. With the answer NONE, it does not rejoin.
        loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if loading else shard
    group = shard.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check(group, request, turn.guards)
    if error.value:  # the value of NONE is 0
        return error
    # The cases Empty and Dead are not reached, because `_check` has refused the request. They are
    # here because Kafka lists them.
    match group.state:
        case GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        case GroupState.PREPARING_REBALANCE:
            # The answer tells the member to rejoin. It needs time for this: its session restarts.
            restart_session(turn, group, group.members[request.member_id], Api.HEARTBEAT)
            return ErrorCode.REBALANCE_IN_PROGRESS
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            restart_session(turn, group, group.members[request.member_id], Api.HEARTBEAT)
            return ErrorCode.NONE
        case GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _check(group: Group, request: HeartbeatRequest, guards: Guards) -> ErrorCode:
    """Check the group, the member and the generation. Return the first error, or NONE."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = check_current_member(group, request.member_id, request.group_instance_id)
    return error if error.value else check_generation(group, request.generation_id, guards)
