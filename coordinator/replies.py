"""Answers to JoinGroup and SyncGroup.

These requests are usually parked, that is, kept without an answer: a JoinGroup until the join phase
ends, a SyncGroup until the assignment is stored. The functions `answer_parked_...` and
`fail_parked_join` answer the parked request of a member. If the member has no parked request, they
do nothing: the request may have been answered before for another reason.

Source: Kafka `JoinGroupResponse`, `KafkaApis.handleJoinGroupRequest`;
docs/kafka/BEHAVIOUR.md 2.2, 4.9.
"""

from coordinator.group import Group
from coordinator.member import Member, ParkedJoin
from coordinator.turn import Turn
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)

NULLABLE_PROTOCOL_NAME_VERSION = 7
"""First version of JoinGroup in which the protocol name may be null. In older versions an empty
string stands for a missing name."""


def join_error(member_id: str, error: ErrorCode, api_version: int) -> JoinGroupResponse:
    """Return the answer to a JoinGroup that fails. An empty `member_id` means no id."""
    return JoinGroupResponse(
        error_code=error,
        member_id=member_id,
        protocol_name=None if api_version >= NULLABLE_PROTOCOL_NAME_VERSION else "",
    )


def join_response(
    group: Group,
    member_id: str,
    *,
    leader_id: str | None,
    members: tuple[JoinGroupResponseMember, ...],
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """Return the answer to a JoinGroup that makes a member part of the current generation.

    `members` has all members with their subscriptions if the answer goes to the leader, because the
    leader computes the assignment. For other members `members` is empty. `skip_assignment` tells a
    leader to compute no assignment (KIP-814).
    """
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or "",  # the format has no null here
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def current_generation(group: Group, member_id: str) -> JoinGroupResponse:
    """Return the usual answer that makes a member part of the current generation.

    The leader's answer has all members. `join_response` is for the less usual answers.
    """
    return join_response(
        group,
        member_id,
        leader_id=group.leader_id,
        members=group.current_member_metadata() if group.is_leader(member_id) else (),
    )


def answer_parked_join(
    turn: Turn, group: Group, member: Member, response: JoinGroupResponse
) -> bool:
    """Answer the member's parked JoinGroup. Return False if no JoinGroup was parked."""
    parked = group.unpark_join(member)
    if parked is None:
        return False
    # `answered` is True if the client has already got UNKNOWN_SERVER_ERROR, because the handler
    # failed after it had parked the request. No second answer is sent.
    if not parked.answered:
        turn.reply(parked.request_id, response)
    return True


def fail_parked_join(
    turn: Turn, group: Group, member: Member, member_id: str, error: ErrorCode
) -> None:
    """Answer the member's parked JoinGroup with an error.

    The answer has `member_id`, which is empty if the client must join as a new member.
    """
    parked = group.unpark_join(member)
    if parked is not None:
        reply_join_error(turn, parked, member_id, error)


def reply_join_error(turn: Turn, parked: ParkedJoin, member_id: str, error: ErrorCode) -> None:
    """Answer `parked`, a JoinGroup that `Group.unpark_join` returned, with an error."""
    if not parked.answered:  # see `answer_parked_join`
        turn.reply(parked.request_id, join_error(member_id, error, parked.api_version))


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    """Return the SyncGroup answer with the member's stored assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def answer_parked_sync(
    turn: Turn, group: Group, member: Member, response: SyncGroupResponse
) -> bool:
    """Answer the member's parked SyncGroup. Return False if no SyncGroup was parked."""
    request_id: RequestId | None = group.unpark_sync(member)
    if request_id is None:
        return False
    turn.reply(request_id, response)
    return True
