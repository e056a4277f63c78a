"""Heartbeat (12), v0 to v4: restarts a member's session and reports a rebalance to the member.

By default the answer comes from memory, without the log. So an old coordinator that is cut off from
the cluster still answers, and its members do not look for the new coordinator. The switch
`heartbeats_wait_for_writes` (of the Java coordinator) prevents that. With it, an answer waits until
every record that was in the log when the request arrived is committed (is on every in-sync
replica). An error other than REBALANCE_IN_PROGRESS never waits.

A turn is the handling of one input; replies go through it. A shard has the groups of one partition
of `__consumer_offsets` that this broker coordinates.
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

# All possible answers, built once: a Heartbeat is the most frequent request.
_RESPONSES = {error: HeartbeatResponse(error_code=error) for error in ErrorCode}


def handle_heartbeat(
    turn: Turn, shard: Shard | ErrorCode, request_id: RequestId, request: HeartbeatRequest
) -> None:
    """Answer a Heartbeat. `shard`: the group's shard, or the error why it is not served here."""
    error = _heartbeat(turn, shard, request)
    if turn.java.heartbeats_wait_for_writes and _waits(shard, error):
        hold(turn, shard, HeldHeartbeat(request_id=request_id, error_code=error))
    else:
        turn.reply(request_id, _RESPONSES[error])


def _waits(shard: Shard | ErrorCode, error: ErrorCode) -> TypeGuard[Shard]:
    """Return True if an answer must wait: it is no refusal, and the log has uncommitted records.

    The TypeGuard tells the type checker that `shard` is no error if the result is True.
    """
    # The handler of the Java coordinator returns these two codes, and a returned answer waits. It
    # throws any other code as an exception, which is answered immediately.
    is_returned = error is ErrorCode.NONE or error is ErrorCode.REBALANCE_IN_PROGRESS
    return isinstance(shard, Shard) and is_returned and not shard.above_high_watermark.is_empty


def _heartbeat(turn: Turn, shard: Shard | ErrorCode, request: HeartbeatRequest) -> ErrorCode:
    """Check a heartbeat and restart the member's session; return the answer's error."""
    if isinstance(shard, ErrorCode):
        # While the partition is loading, the member may well be in the group. So the answer is
        # NONE, and the member does not rejoin.
        loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if loading else shard
    group = shard.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check(group, request, turn.guards)
    if error.value:  # the value of NONE is 0
        return error
    # _check has already refused a Dead group, and an Empty one, since no member id is in it. Both
    # are listed here as in Kafka.
    match group.state:
        case GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        case GroupState.PREPARING_REBALANCE:
            # The member must rejoin. Its session must not end before its JoinGroup arrives.
            restart_session(turn, group, group.members[request.member_id], Api.HEARTBEAT)
            return ErrorCode.REBALANCE_IN_PROGRESS
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            restart_session(turn, group, group.members[request.member_id], Api.HEARTBEAT)
            return ErrorCode.NONE
        case GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _check(group: Group, request: HeartbeatRequest, guards: Guards) -> ErrorCode:
    """Check group, member and generation of a heartbeat; return the first error, or NONE."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = check_current_member(group, request.member_id, request.group_instance_id)
    return error if error.value else check_generation(group, request.generation_id, guards)
