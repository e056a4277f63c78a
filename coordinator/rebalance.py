"""The join phase: how a rebalance begins, completes, and loses members on the way.

Kafka's GroupCoordinator does all of this under the group's lock; here it is one turn.
Source: Kafka `prepareRebalance`, `tryCompleteJoin`, `onCompleteJoin`,
`removeMemberAndUpdateGroup`; BEHAVIOUR 2.2.3, 2.5, 3.2.
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
    """Why a rebalance begins, as REBALANCE_STARTED tells it.

    `text` is the sentence for people; `member_id` the member that caused it, None if no single
    member did; `client_reason` what that member's client gave as its reason, None if nothing;
    `silent_members` the ids that owed a SyncGroup; `error` what the log answered to an assignment.
    """

    cause: RebalanceCause
    text: str
    member_id: str | None = None
    client_reason: str | None = None
    silent_members: tuple[str, ...] = ()
    error: ErrorCode | None = None

    def detail(self) -> dict[str, object] | None:
        """Return the detail of REBALANCE_STARTED, None where there is nothing to say."""
        detail: dict[str, object] = {}
        if self.client_reason is not None:
            detail["client_reason"] = self.client_reason
        if self.silent_members:
            detail["silent_members"] = self.silent_members
        return detail or None


def reason_of_client(
    cause: RebalanceCause, what: str, *, member_id: str, client_reason: str | None
) -> RebalanceReason:
    """Return the reason of a rebalance that a member's own request starts; `what` it did."""
    return RebalanceReason(
        cause=cause,
        text=f"{what}; client reason: {client_reason or 'not provided'}",
        member_id=member_id,
        client_reason=client_reason or None,
    )


def maybe_prepare_rebalance(turn: Turn, group: Group, reason: RebalanceReason) -> None:
    """Start a rebalance, unless the group is rebalancing already (or Dead)."""
    if group.can_rebalance:
        prepare_rebalance(turn, group, reason)


def prepare_rebalance(turn: Turn, group: Group, reason: RebalanceReason) -> None:
    """Start a rebalance."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
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
        initial = initial_join(turn, group)
        schedule_join(turn, group, initial, initial.delay_ms)
    else:
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        try_complete_join(turn, group)


def try_complete_join(
    turn: Turn,
    group: Group,
    *,
    cause: GroupStateCause = GroupStateCause.ALL_JOINED,
    cause_text: str | None = None,
) -> None:
    """Complete the join phase if it need not wait any longer.

    An initial join phase always waits; one whose completion failed is never completed.
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
    """End the join phase: drop who did not rejoin, begin the next generation, answer everyone.

    If nobody rejoined and only static members are left, the phase goes on instead, until their
    session timers end it.

    Raises: UnknownServerError if the generation cannot begin: the group then stays in
        PreparingRebalance with nothing to complete it, as in Kafka (BEHAVIOUR 0.1).
    """
    cancel_join(turn, group)
    for member in tuple(group.members.values()):
        if member.awaiting_join is None and not member.is_static:
            drop_member(turn, group, member, cause=RemovalCause.DID_NOT_REJOIN)
    if not group.elect_joined_leader() and group.members:
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        return
    group.init_next_generation(
        now_us=turn.now_us, cause=cause, cause_text=cause_text, trace=turn.result.trace
    )
    if group.state is GroupState.EMPTY:
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
    for member in group.members.values():
        response = current_generation(group, member.member_id)
        if answer_parked_join(turn, group, member, response):
            restart_session(turn, group, member, Api.JOIN_GROUP)
        else:  # a static member that is waited for
            restart_session_timer(turn, group, member)
        member.is_new = False
        group.add_pending_sync_member(member.member_id)
    schedule_sync(turn, group)


def reset_assignments(turn: Turn, group: Group, error: ErrorCode) -> None:
    """Forget the assignments of this generation and answer parked SyncGroups with `error`."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync_and_restart(turn, group, member, SyncGroupResponse(error_code=error))


def answer_sync_and_restart(
    turn: Turn, group: Group, member: Member, response: SyncGroupResponse
) -> None:
    """Answer the member's parked SyncGroup, if any, and restart its session timer then.

    The timer may have fired, and been ignored, while the SyncGroup was parked: without a new one
    nothing would ever expire the member.
    """
    if answer_parked_sync(turn, group, member, response):
        restart_session(turn, group, member, Api.SYNC_GROUP)


def drop_member(turn: Turn, group: Group, member: Member, *, cause: RemovalCause) -> None:
    """Take a member out of the group, with its timer; the group's state does not change."""
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
    """Take a member out and rebalance, or complete the join phase that waited for it."""
    fail_parked_join(turn, group, member, "", ErrorCode.UNKNOWN_MEMBER_ID)
    drop_member(turn, group, member, cause=cause)
    match group.state:
        case GroupState.DEAD | GroupState.EMPTY:
            pass
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            maybe_prepare_rebalance(turn, group, reason)
        case GroupState.PREPARING_REBALANCE:
            try_complete_join(
                turn,
                group,
                cause=GroupStateCause.LAST_MISSING_WENT,
                cause_text=f"{cause} of the last member that had not joined",
            )


def remove_pending_member(turn: Turn, group: Group, member_id: str, *, cause: RemovalCause) -> None:
    """Forget an id that was given out, and complete the join phase if it was the last to wait."""
    group.remove(member_id)
    cancel_heartbeat(turn, group, member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete_join(
            turn,
            group,
            cause=GroupStateCause.LAST_MISSING_WENT,
            cause_text=f"{cause} of the last member id that had not joined",
        )
