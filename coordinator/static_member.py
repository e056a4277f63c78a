"""Replacement of a static member: a new process takes the place of the old one (KIP-345).

A static member has a group.instance.id. After a restart its process joins with that instance id and
without a member id. It gets a new member id. The old id is fenced (its requests are answered with
FENCED_INSTANCE_ID), in case the old process still runs. A Stable group needs no rebalance for this:
the new process keeps the old assignment.

The coordinator stores the new id: it appends the group's record to the log. Until the append has
completed, the JoinGroup is parked, that is, kept without an answer in `member.awaiting_join`. The
append completes in a later turn (a turn is the handling of one input). So `replace_static_member`
gives `turn.append` the record and a `StaticMemberAppend`, which holds what the later turn needs.
The later turn calls `static_member_stored` with it.

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
    """Give the member a new id, fence the old id, and park the request.

    In a Stable group that keeps its protocol, the request is answered when the log has the new id.
    In every other case a rebalance runs or begins here, and the end of its join phase answers the
    request.

    `parked`: the JoinGroup of the new process. The protocols and the timeouts (in milliseconds) are
    its fields.
    Raises: UnknownServerError if the group is Empty or Dead. Kafka throws an exception there, too.
    """
    # If the member is the leader, `_rename` changes `group.leader_id`. The old leader id is needed
    # later, in some answers (`static_member_stored`, `_revert`).
    old_leader_id = group.leader_id
    member = _rename(turn, group, group_instance_id, old_member_id, new_member_id)
    # At this point the member still has the session timeout of the old process; `update_member`
    # below sets that of the request. As in Kafka, the session restarts already here, so the new
    # process's first session has the old timeout (docs/kafka/BEHAVIOUR.md 0.1).
    restart_session(turn, group, member, Api.JOIN_GROUP)

    # The old timeouts are restored if the new id cannot be stored (`_revert`).
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
            # The new process may support other protocols, which can change the members' vote on
            # the group's protocol. Kafka calls `maybePrepareRebalance` here, which first checks
            # that the group can rebalance. A Stable group always can.
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
            # The leader may be computing an assignment for the old id. So the members join again.
            prepare_rebalance(turn, group, reason)
        case GroupState.PREPARING_REBALANCE:
            pass  # the join phase that is under way answers the request
        case GroupState.EMPTY | GroupState.DEAD:
            raise UnknownServerError(
                f"group {group.group_id} is {group.state.value}, yet has static member "
                f"{group_instance_id}"
            )


def static_member_stored(turn: Turn, append: StaticMemberAppend, error: ErrorCode) -> None:
    """Answer the JoinGroup whose new member id was stored, or restore the old id on an error."""
    if error is not ErrorCode.NONE:
        # `turn.java` has the switches for single behaviours of Kafka's Java coordinator. Its error
        # for a failed append differs from that of the Scala coordinator.
        _revert(turn, append, group_append_error(error, turn.java))
        return
    group, member, parked = append.group, append.member, append.parked
    if member.awaiting_join is not parked:
        return  # answered meanwhile: by a rebalance, a removal, or the next replacement

    # The member is still in the group, since its removal would have answered the JoinGroup.

    # A leader that got the list of members would compute a new assignment, which a Stable group
    # does not store. From v9 on, the answer can tell a leader to skip the assignment. Below v9, the
    # answer therefore hides from the new process that it is the leader: it names the old leader id.
    # The process then acts as a follower, and only fetches its assignment.
    can_skip_assignment = parked.api_version >= SKIP_ASSIGNMENT_VERSION
    # True if the answer tells the new process that it is the leader.
    is_leader = can_skip_assignment and group.is_leader(append.new_member_id)
    # A leader's answer needs the list of members, which Kafka cannot build in the states Dead and
    # PreparingRebalance. A follower's answer has no such list, and is given in every state.
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
    """Undo a replacement that could not be stored; the member keeps its new protocols, as in Kafka.

    DEVIATION: if a rebalance or the next replacement has answered the JoinGroup meanwhile, a
    process knows the new id already, so the new id stays. Kafka restores the old id even in this
    case, and answers the request a second time.
    """
    group, member = append.group, append.member
    if member.awaiting_join is not append.parked:
        return
    # `_rename` answers a parked JoinGroup with FENCED_INSTANCE_ID. This JoinGroup must be answered
    # with `error` instead, so `update_member` first removes it from the member (`parked=None`).
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
            # As in Kafka, the answer names no member id: the new id is no longer valid, and the old
            # id belongs to the old process.
            member_id="",
        ),
    )


def _rename(turn: Turn, group: Group, group_instance_id: str, old_id: str, new_id: str) -> Member:
    """Fence the old id, give the member the new one, and trace both; return the member.

    Requests of the old id that are parked are answered with FENCED_INSTANCE_ID.
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
    # MEMBER_ADDED gets a cause of removal, too. Since both rows have this cause, a reader of the
    # trace knows that they are one replacement, and that no member came or went.
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
