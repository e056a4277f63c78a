"""The join phase of a rebalance: its beginning, its end, and the removal of members.

`prepare_rebalance` begins the join phase: the group enters PreparingRebalance, and the members must
send JoinGroup. Their requests are parked, that is, kept without an answer. `complete_join` ends the
phase: it begins the next generation and answers the parked requests. In the sync phase that
follows, the members send SyncGroup to get their partitions.

`group.delayed_join` says what ends a join phase:
- a DelayedJoin: the JoinGroup of the last missing member, or the timer at the rebalance timeout;
- an InitialDelayedJoin: only a timer. The first join phase of an Empty group waits in this way for
  more members to come.

A member may also be removed while the join phase waits for its JoinGroup, because the member left
or its session expired. If the phase waits for no other member, the removal ends the phase.

Source: Kafka `prepareRebalance`, `tryCompleteJoin`, `onCompleteJoin`,
`removeMemberAndUpdateGroup`; docs/kafka/BEHAVIOUR.md 2.2.3, 2.5, 3.2.
"""

from dataclasses import dataclass

from coordinator.delayed import (
    cancel_heartbeat,
    cancel_join,
    clear_sync,
    initial_join,
    restart_session,
    restart_session_timer,
    schedule_join,
    schedule_sync,
)
from coordinator.group import DelayedJoin, Group
from coordinator.member import Member
from coordinator.replies import (
    answer_parked_join,
    answer_parked_sync,
    current_generation,
    fail_parked_join,
)
from coordinator.states import GroupState
from coordinator.storage.store import group_record
from coordinator.turn import EmptyGroupAppend, Turn
from protocol.api import Api
from protocol.causes import GroupStateCause, RebalanceCause, RemovalCause
from protocol.errors import ErrorCode
from protocol.messages.group import SyncGroupResponse
from protocol.trace import TraceEvent, TraceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceReason:
    """Why a rebalance begins. The trace row REBALANCE_STARTED shows these fields.

    cause: the kind of reason, for programs that read the trace.
    text: a sentence for people, such as "member c-1 joined; client reason: not provided".
    member_id: the member that caused the rebalance, None if no single member did.
    client_reason: the reason in the member's request (KIP-800), None if the request has no reason.
    silent_members: the members that sent no SyncGroup, if the rebalance begins for this reason.
    error: if an assignment could not be stored, the error of the log.
    """

    cause: RebalanceCause
    text: str
    member_id: str | None = None
    client_reason: str | None = None
    silent_members: tuple[str, ...] = ()
    error: ErrorCode | None = None

    def detail(self) -> dict[str, object] | None:
        """Return the trace row's column `detail`: the fields that have no column of their own.

        The result is None if all of these fields are empty.
        """
        detail: dict[str, object] = {}
        if self.client_reason is not None:
            detail["client_reason"] = self.client_reason
        if self.silent_members:
            detail["silent_members"] = self.silent_members
        return detail or None


def reason_of_client(
    cause: RebalanceCause, what: str, *, member_id: str, client_reason: str | None
) -> RebalanceReason:
    """Return the reason of a rebalance that a member's request starts.

    `what` is the first part of the reason's text, such as "member c-1 joined".
    """
    return RebalanceReason(
        cause=cause,
        # A client may also send an empty reason, which counts as none.
        text=f"{what}; client reason: {client_reason or 'not provided'}",
        member_id=member_id,
        client_reason=client_reason or None,
    )


def maybe_prepare_rebalance(turn: Turn, group: Group, reason: RebalanceReason) -> None:
    """Start a rebalance unless the group is in a join phase already, or Dead."""
    if group.can_rebalance:
        prepare_rebalance(turn, group, reason)


def prepare_rebalance(turn: Turn, group: Group, reason: RebalanceReason) -> None:
    """Start a rebalance: enter PreparingRebalance and say what ends the join phase."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        # Some members may wait for the assignment of this generation. There will be no assignment,
        # so the error tells these members to rejoin.
        reset_assignments(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    # This generation is over, so the group waits for none of its SyncGroups any more.
    clear_sync(turn, group)

    was_empty = group.state is GroupState.EMPTY
    turn.trace(
        TraceEvent(
            kind=TraceKind.REBALANCE_STARTED,
            group=group.group_id,
            member=reason.member_id,
            generation=group.generation_id,
            error=None if reason.error is None else reason.error.name,
            cause=reason.cause,
            detail=reason.detail(),
            cause_text=reason.text,
        )
    )
    group.transition_to(
        GroupState.PREPARING_REBALANCE,
        now_us=turn.now_us,
        cause=reason.cause,
        cause_text=reason.text,
        trace=turn.result.trace,
    )

    if was_empty:
        # This is the first member of the group. Others usually follow, so the group waits for them
        # (group.initial.rebalance.delay.ms).
        initial = initial_join(turn, group)
        schedule_join(turn, group, initial, initial.delay_ms)
    else:
        # If no member is missing, `try_complete_join` ends the phase immediately. For example, the
        # only member of a group rejoins: its JoinGroup begins the rebalance, and is parked already.
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        try_complete_join(turn, group)


def try_complete_join(
    turn: Turn,
    group: Group,
    *,
    cause: GroupStateCause = GroupStateCause.ALL_JOINED,
    cause_text: str | None = None,
) -> None:
    """End the join phase if every member has joined.

    In two cases nothing is done, even if every member has joined:
    - In the first join phase of an Empty group, because only its timer ends this phase.
    - After `complete_join` has raised an exception. Then `group.delayed_join` is None, and nothing
      ends the join phase any more.

    `cause` and `cause_text` say why the phase ends now. If no member is left, the cause is
    NO_MEMBER_LEFT instead.
    """
    if not isinstance(group.delayed_join, DelayedJoin) or not group.has_all_members_joined:
        return
    if group.members:
        complete_join(turn, group, cause=cause, cause_text=cause_text)
    else:
        complete_join(turn, group, cause=GroupStateCause.NO_MEMBER_LEFT)


def complete_join(
    turn: Turn, group: Group, *, cause: GroupStateCause, cause_text: str | None = None
) -> None:
    """End the join phase.

    Members that have not rejoined are dropped, the next generation begins, and the parked requests
    are answered.

    Raises: UnknownServerError if the generation cannot begin (`init_next_generation`). The group
        then stays in PreparingRebalance, and nothing ends the phase any more, as in Kafka
        (BEHAVIOUR 0.1).
    """
    cancel_join(turn, group)
    for member in tuple(group.members.values()):  # a copy: `drop_member` removes members
        # A static member (one with a group.instance.id) keeps its place while it restarts. Only its
        # session timer removes it.
        if member.awaiting_join is None and not member.is_static:
            drop_member(turn, group, member, cause=RemovalCause.DID_NOT_REJOIN)

    # The leader must be a member that has rejoined. `elect_joined_leader` returns False if no
    # member has rejoined.
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none of them has rejoined. So no member could compute an
        # assignment. The join phase goes on until a member rejoins, or all members expire.
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        return

    group.init_next_generation(
        now_us=turn.now_us, cause=cause, cause_text=cause_text, trace=turn.result.trace
    )
    if group.state is GroupState.EMPTY:
        # No member is left. A group with members is stored in the log when its leader sends the
        # assignment. A group without members has no leader, so it is stored now.
        record = group_record(group, {}, turn.now_ms, turn.versions)
        turn.append(group, (record,), EmptyGroupAppend(group=group))
        return

    turn.trace(
        TraceEvent(
            kind=TraceKind.GENERATION_STARTED,
            group=group.group_id,
            generation=group.generation_id,
            detail={
                "members": list(group.members),
                "leader": group.leader_id,
                "protocol": group.protocol_name,
            },
        )
    )

    # Answer the members that have rejoined, and wait for the SyncGroup of every member.
    for member in group.members.values():
        response = current_generation(group, member.member_id)
        # `answer_parked_join` returns False if there is no JoinGroup to answer.
        if answer_parked_join(turn, group, member, response):
            restart_session(turn, group, member, Api.JOIN_GROUP)
        else:
            # This is a static member that has not rejoined. Its timer restarts, too. But it has
            # sent no request, so the trace must not get the row that `restart_session` writes.
            restart_session_timer(turn, group, member)
        member.is_new = False  # its first join phase is over
        group.add_pending_sync_member(member.member_id)
    schedule_sync(turn, group)


def reset_assignments(turn: Turn, group: Group, error: ErrorCode) -> None:
    """Clear the assignments of this generation and answer parked SyncGroups with `error`."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync_and_restart(turn, group, member, SyncGroupResponse(error_code=error))


def answer_sync_and_restart(
    turn: Turn, group: Group, member: Member, response: SyncGroupResponse
) -> None:
    """Answer the member's parked SyncGroup, if there is one, and restart its session timer."""
    # Without the restart the member might never expire:
    # 1. Its SyncGroup is parked.
    # 2. Its session timer fires. The coordinator ignores this, because the client rightly waits.
    # 3. Its SyncGroup is answered. From now on no session timer of the member would run.
    if answer_parked_sync(turn, group, member, response):
        restart_session(turn, group, member, Api.SYNC_GROUP)


def drop_member(turn: Turn, group: Group, member: Member, *, cause: RemovalCause) -> None:
    """Remove a member and its timer, without any change of the group's state."""
    group.remove(member.member_id)
    cancel_heartbeat(turn, group, member.member_id)
    turn.trace(
        TraceEvent(
            kind=TraceKind.MEMBER_REMOVED,
            group=group.group_id,
            member=member.member_id,
            generation=group.generation_id,
            cause=cause,
        )
    )


def remove_member(
    turn: Turn, group: Group, member: Member, *, cause: RemovalCause, reason: RebalanceReason
) -> None:
    """Remove a member, and do what its removal makes necessary.

    In the states Stable and CompletingRebalance, a rebalance begins, for `reason`. If a join phase
    waited only for this member, the phase ends.
    """
    # A parked JoinGroup of the member is answered while the member is still in the group. The
    # answer has an empty member id, so that the client joins as a new member.
    fail_parked_join(turn, group, member, "", ErrorCode.UNKNOWN_MEMBER_ID)
    drop_member(turn, group, member, cause=cause)
    match group.state:
        case GroupState.DEAD | GroupState.EMPTY:
            pass  # not reached: groups in these states have no member to remove
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            maybe_prepare_rebalance(turn, group, reason)
        case GroupState.PREPARING_REBALANCE:
            try_complete_join(
                turn,
                group,
                cause=GroupStateCause.LAST_MISSING_WENT,
                # Such as "session expiry of the last member that had not joined".
                cause_text=f"{cause} of the last member that had not joined",
            )


def remove_pending_member(turn: Turn, group: Group, member_id: str, *, cause: RemovalCause) -> None:
    """Forget a pending id: a client got this id with MEMBER_ID_REQUIRED, and has not joined yet.

    If the join phase waited only for this id, the phase ends.
    """
    group.remove(member_id)
    cancel_heartbeat(turn, group, member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete_join(
            turn,
            group,
            cause=GroupStateCause.LAST_MISSING_WENT,
            cause_text=f"{cause} of the last member id that had not joined",
        )
