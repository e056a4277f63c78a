"""SyncGroup (14), v0 to v5: the leader sends the assignment, and each member gets its part.

A group in CompletingRebalance waits for the assignment that its leader, one of the members, is
computing. Meanwhile the SyncGroups of the members are parked, that is, kept without an answer. When
the leader's SyncGroup brings the assignment, the assignment is appended to the log. When the append
is acknowledged (`assignment_stored`), all parked requests are answered, and the group is Stable.

The sync timer ends the wait for members that send no SyncGroup. `group.pending_sync_members` has
these members.

Source: Kafka `GroupCoordinator.handleSyncGroup`, `validateSyncGroup`, `doSyncGroup`;
docs/kafka/BEHAVIOUR.md 2.3.
"""

from coordinator.delayed import complete_sync, restart_session
from coordinator.errors import group_append_error
from coordinator.group import Group
from coordinator.rebalance import (
    RebalanceReason,
    answer_sync_and_restart,
    maybe_prepare_rebalance,
    reset_assignments,
)
from coordinator.replies import sync_response
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.store import group_record
from coordinator.turn import AssignmentAppend, Turn
from coordinator.validation import check_current_member
from protocol.api import Api
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.errors import ErrorCode
from protocol.ids import AppendId, RequestId
from protocol.messages.group import SyncGroupRequest, SyncGroupResponse
from protocol.trace import TraceEvent, TraceKind

MANDATORY_PROTOCOL_VERSION = 5
"""From this version on, a request must have a protocol type and a protocol name."""


def handle_sync_group(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: SyncGroupRequest,
    api_version: int,
) -> None:
    """Answer or park a SyncGroup.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.
    """
    # As in Kafka, this check comes before the check of `shard`: Kafka makes it before the
    # coordinator sees the request (BEHAVIOUR 2.0).
    if api_version >= MANDATORY_PROTOCOL_VERSION and (
        request.protocol_type is None or request.protocol_name is None
    ):
        _refuse(turn, request_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    if isinstance(shard, ErrorCode):
        # While the partition is loading, the answer is REBALANCE_IN_PROGRESS, so that the member
        # rejoins. The rebalance must start over anyway, because the earlier coordinator did not
        # store it. Old clients do not know COORDINATOR_LOAD_IN_PROGRESS in this API.
        loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        _refuse(turn, request_id, ErrorCode.REBALANCE_IN_PROGRESS if loading else shard)
        return
    group = shard.groups.get(request.group_id)
    if group is None:
        _refuse(turn, request_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        _refuse(turn, request_id, error)
        return

    match group.state:
        case GroupState.EMPTY:
            # Not reached: no member id is in the group, so `_check` has refused the request.
            _refuse(turn, request_id, ErrorCode.UNKNOWN_MEMBER_ID)
        case GroupState.PREPARING_REBALANCE:
            _refuse(turn, request_id, ErrorCode.REBALANCE_IN_PROGRESS)
        case GroupState.COMPLETING_REBALANCE:
            _park(turn, group, request_id, request)
        case GroupState.STABLE:
            # The assignment is stored already. The member is late, or has lost its first answer.
            group.remove_pending_sync_member(request.member_id)
            complete_sync(turn, group)  # stops the sync timer if no member is pending any more
            member = group.members[request.member_id]
            turn.reply(request_id, sync_response(group, member))
            restart_session(turn, group, member, Api.SYNC_GROUP)
        case GroupState.DEAD:
            # Not reached: `_check` has refused the request. Kafka lists the states Empty and Dead.
            _refuse(turn, request_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def assignment_stored(
    turn: Turn, append_id: AppendId, append: AssignmentAppend, error: ErrorCode
) -> None:
    """Answer the parked SyncGroups, because the append of the assignment has completed.

    If the append has failed, the group must rebalance.
    """
    group = append.group
    # Since the append was requested, another rebalance may have begun, for example because a member
    # joined or expired. That rebalance has answered all parked SyncGroups, and the assignment
    # belongs to a generation that is over. So nothing is left to do.
    if (
        group.state is not GroupState.COMPLETING_REBALANCE
        or group.generation_id != append.generation_id
    ):
        return

    if error is not ErrorCode.NONE:
        reset_assignments(turn, group, group_append_error(error, turn.java))
        maybe_prepare_rebalance(
            turn,
            group,
            RebalanceReason(
                cause=RebalanceCause.ASSIGNMENT_NOT_STORED,
                text=f"the assignment could not be stored: {error.name}",
                member_id=append.member_id,
                error=error,
            ),
        )
        return

    # The group still has the members that it had when the append was requested, because any change
    # of the members begins a rebalance. So every member has an entry in `append.assignments`.
    for member in group.members.values():
        member.assignment = append.assignments[member.member_id]
    turn.trace(
        TraceEvent(
            kind=TraceKind.ASSIGNMENT_STORED,
            group=group.group_id,
            generation=group.generation_id,
            correlation_id=append_id,
        )
    )
    for member in group.members.values():
        answer_sync_and_restart(turn, group, member, sync_response(group, member))
    group.transition_to(
        GroupState.STABLE,
        now_us=turn.now_us,
        cause=GroupStateCause.ASSIGNMENT_STORED,
        trace=turn.result.trace,
    )


def _check(group: Group, request: SyncGroupRequest) -> ErrorCode:
    """Check the member, the generation and the protocol of a SyncGroup.

    Return the first error, or NONE.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = check_current_member(group, request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _park(turn: Turn, group: Group, request_id: RequestId, request: SyncGroupRequest) -> None:
    """Park the request until the assignment is stored.

    If the request is the leader's, append the assignment that it brings.
    """
    # An earlier SyncGroup of the same member is forgotten and never answered, as in Kafka.
    group.members[request.member_id].awaiting_sync = request_id
    group.remove_pending_sync_member(request.member_id)
    complete_sync(turn, group)  # stops the sync timer if no member is pending any more
    if not group.is_leader(request.member_id):
        return
    sent_assignments = {entry.member_id: entry.assignment for entry in request.assignments}
    # A member that the leader has left out gets an empty assignment. The leader may also name an id
    # that is no member any more. Such an id is not stored.
    assignments = {member_id: sent_assignments.get(member_id, b"") for member_id in group.members}
    turn.append(
        group,
        (group_record(group, assignments, turn.now_ms, turn.versions),),
        AssignmentAppend(
            group=group,
            generation_id=group.generation_id,
            member_id=request.member_id,
            assignments=assignments,
        ),
    )


def _refuse(turn: Turn, request_id: RequestId, error: ErrorCode) -> None:
    turn.reply(request_id, SyncGroupResponse(error_code=error))
