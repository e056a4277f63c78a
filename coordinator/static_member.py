"""Replacement of a static member: a new process takes the place of the old one (KIP-345).

A static member has a group.instance.id. After a restart its process sends a JoinGroup with that
instance id and without a member id, and gets a new member id. The old process may still be running,
so the old id is fenced: its requests are answered with FENCED_INSTANCE_ID. A Stable group needs no
rebalance for this, because the new process takes over the old assignment.

The replacement takes two turns (a turn is the handling of one input):
1. `replace_static_member` handles the JoinGroup. It gives the member its new id, appends the record
   of the group to the log, and parks the JoinGroup in `member.awaiting_join`.
2. When the append has completed, `static_member_stored` answers the JoinGroup. This function gets a
   `StaticMemberAppend`, which has what it must know about the first turn.

Source: Kafka `updateStaticMemberAndRebalance` (KIP-345, KIP-814); docs/kafka/BEHAVIOUR.md 2.2.2.
"""

from coordinator.delayed import (
    cancel_heartbeat,
    ensure_session_timer,
    restart_session,
    restart_session_timer,
)
from coordinator.errors import UnknownServerError, group_append_error
from coordinator.group import Group
from coordinator.member import Member, ParkedJoin
from coordinator.rebalance import maybe_prepare_rebalance, prepare_rebalance, reason_of_client
from coordinator.replies import (
    answer_parked_join,
    answer_parked_sync,
    fail_parked_join,
    join_response,
    reply_join_error,
)
from coordinator.states import GroupState
from coordinator.storage.store import group_record
from coordinator.turn import StaticMemberAppend, Turn
from protocol.api import Api
from protocol.causes import RebalanceCause, RemovalCause
from protocol.errors import ErrorCode
from protocol.messages.group import JoinGroupRequestProtocol, JoinGroupResponse, SyncGroupResponse
from protocol.trace import TraceEvent, TraceKind

SKIP_ASSIGNMENT_VERSION = 9
"""First version of JoinGroup that can tell a restarted leader to skip the assignment (KIP-814)."""


def replace_static_member(
    turn: Turn,
    group: Group,
    *,
    parked: ParkedJoin,
    group_instance_id: str,
    old_member_id: str,
    new_member_id: str,
    protocols: tuple[JoinGroupRequestProtocol, ...],
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
    client_reason: str | None,
) -> None:
    """Give the member a new id, fence the old id, and park the JoinGroup of the new process.

    `parked` is this JoinGroup; the protocols and timeouts are its fields.
    In a Stable group that keeps its protocol, the request is answered when the log has the new id.
    In every other case a rebalance is running or begins here, and the end of its join phase answers
    the request.

    Raises: UnknownServerError if the group is Empty or Dead. Kafka throws an exception there, too.
    """
    # `_rename` changes `group.leader_id` if the member is the leader. Some answers need the old
    # leader id (see `static_member_stored` and `_revert`).
    old_leader_id = group.leader_id
    member = _rename(turn, group, group_instance_id, old_member_id, new_member_id)
    # As in Kafka, the session restarts before `update_member` sets the new session timeout. So the
    # first session of the new process has the timeout of the old one (docs/kafka/BEHAVIOUR.md 0.1).
    restart_session(turn, group, member, Api.JOIN_GROUP)

    # If the new id cannot be stored, `_revert` restores the old timeouts.
    old_rebalance_timeout_ms = member.rebalance_timeout_ms
    old_session_timeout_ms = member.session_timeout_ms
    group.update_member(
        member,
        protocols,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        parked=parked,
    )
    reason = reason_of_client(
        RebalanceCause.STATIC_MEMBER_BACK,
        f"static member {group_instance_id} came back as {new_member_id}",
        member_id=new_member_id,
        client_reason=client_reason,
    )

    match group.state:
        case GroupState.STABLE:
            # The new process may prefer other protocols than the old one. If the members would now
            # vote for another protocol, the group must rebalance. Here `maybe_prepare_rebalance`
            # always begins a rebalance, because a Stable group can rebalance. Kafka calls the
            # function of this name, too.
            if group.select_protocol() != group.protocol_name:
                maybe_prepare_rebalance(turn, group, reason)
                return
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            turn.append(
                group,
                (group_record(group, assignments, turn.now_ms, turn.versions),),
                StaticMemberAppend(
                    group=group,
                    member=member,
                    parked=parked,
                    group_instance_id=group_instance_id,
                    old_member_id=old_member_id,
                    new_member_id=new_member_id,
                    old_leader_id=old_leader_id,
                    old_rebalance_timeout_ms=old_rebalance_timeout_ms,
                    old_session_timeout_ms=old_session_timeout_ms,
                ),
            )
        case GroupState.COMPLETING_REBALANCE:
            # The leader may be computing an assignment for the old id, so the members must rejoin.
            prepare_rebalance(turn, group, reason)
        case GroupState.PREPARING_REBALANCE:
            pass  # the join phase that is under way answers the request
        case GroupState.EMPTY | GroupState.DEAD:
            raise UnknownServerError(
                f"group {group.group_id} is {group.state.value}, yet has static member "
                f"{group_instance_id}"
            )


def static_member_stored(turn: Turn, append: StaticMemberAppend, error: ErrorCode) -> None:
    """Answer the JoinGroup of the new process, or restore the old id if the append has failed."""
    if error is not ErrorCode.NONE:
        # Kafka's Java coordinator and its Scala coordinator answer with different errors.
        # `turn.java` says which of them to imitate.
        _revert(turn, append, group_append_error(error, turn.java))
        return
    group, member, parked = append.group, append.member, append.parked
    if member.awaiting_join is not parked:
        return  # answered meanwhile: by a rebalance, a removal, or the next replacement

    # The member is still in the group, because its removal would have answered the JoinGroup.

    # What if the member is the leader? A leader computes an assignment, but a Stable group would
    # not store this assignment. From v9 on, the answer can tell the leader to skip the assignment.
    # An answer before v9 cannot tell this. So before v9 the new process must not learn that it is
    # the leader: the answer names the old leader id. Then the process behaves as a follower, which
    # only fetches its assignment.
    can_skip_assignment = parked.api_version >= SKIP_ASSIGNMENT_VERSION
    # True if the answer tells the new process that it is the leader.
    is_leader = can_skip_assignment and group.is_leader(append.new_member_id)
    # A leader's answer has the list of members. Kafka cannot build the list if the group has become
    # Dead or has begun a rebalance. A follower's answer has no list, and is sent in every state.
    if is_leader and group.state is GroupState.DEAD:
        fail_parked_join(turn, group, member, append.new_member_id, ErrorCode.NOT_COORDINATOR)
        return
    if is_leader and group.state is GroupState.PREPARING_REBALANCE:
        return  # the request stays parked, and the join phase answers it
    response = join_response(
        group,
        append.new_member_id,
        leader_id=group.leader_id if can_skip_assignment else append.old_leader_id,
        members=group.current_member_metadata() if is_leader else (),
        skip_assignment=is_leader,
    )
    answer_parked_join(turn, group, member, response)
    ensure_session_timer(turn, group, member)  # starts a timer only if none runs


def _revert(turn: Turn, append: StaticMemberAppend, error: ErrorCode) -> None:
    """Undo a replacement that could not be stored. The member keeps its new protocols, as in Kafka.

    DEVIATION: a rebalance or the next replacement may have answered the JoinGroup meanwhile. Then a
    process knows the new id already, so the new id stays. Kafka restores the old id even in this
    case, and answers the request a second time.
    """
    group, member = append.group, append.member
    if member.awaiting_join is not append.parked:
        return
    # `parked=None` removes the JoinGroup from the member. Otherwise `_rename` would answer the
    # JoinGroup with FENCED_INSTANCE_ID. The JoinGroup must be answered with `error`, see below.
    group.update_member(
        member,
        member.supported_protocols,
        rebalance_timeout_ms=append.old_rebalance_timeout_ms,
        session_timeout_ms=append.old_session_timeout_ms,
        parked=None,
    )
    _rename(turn, group, append.group_instance_id, append.new_member_id, append.old_member_id)
    restart_session_timer(turn, group, member)  # unlike `restart_session`, traces no request
    turn.reply(
        append.parked.request_id,
        JoinGroupResponse(
            error_code=error,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=append.old_leader_id or "",
            # As in Kafka, the answer has an empty member id: the new id is not valid any more, and
            # the old id belongs to the old process.
            member_id="",
        ),
    )


def _rename(turn: Turn, group: Group, group_instance_id: str, old_id: str, new_id: str) -> Member:
    """Give the member the id `new_id` in place of `old_id`, and return the member.

    Parked requests of the old id are answered with FENCED_INSTANCE_ID.
    """
    member = group.members[old_id]
    parked = group.unpark_join(member)
    if parked is not None:
        reply_join_error(turn, parked, old_id, ErrorCode.FENCED_INSTANCE_ID)
    answer_parked_sync(
        turn, group, member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
    )
    cancel_heartbeat(turn, group, old_id)
    group.replace_static_member(group_instance_id, old_id, new_id)
    # The row MEMBER_ADDED has a cause of removal, the same as the row MEMBER_REMOVED. So a reader
    # of the trace knows that both rows are about one replacement, and that no member came or went.
    for kind, member_id in ((TraceKind.MEMBER_REMOVED, old_id), (TraceKind.MEMBER_ADDED, new_id)):
        turn.trace(
            TraceEvent(
                kind=kind,
                group=group.group_id,
                member=member_id,
                generation=group.generation_id,
                cause=RemovalCause.STATIC_MEMBER_REPLACED,
                detail={"client_id": member.client_id, "instance": group_instance_id},
                cause_text=f"static member {group_instance_id} replaced",
            )
        )
    return member
