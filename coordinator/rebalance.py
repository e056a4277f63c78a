"""The join phase: how a rebalance begins, completes, and loses members on the way.

Kafka's GroupCoordinator does all of this under the group's lock; here it is one turn.
Source: Kafka `prepareRebalance`, `tryCompleteJoin`, `onCompleteJoin`,
`removeMemberAndUpdateGroup`; BEHAVIOUR 2.2.3, 2.5, 3.2.
"""

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
from protocol.errors import ErrorCode
from protocol.messages.group import SyncGroupResponse
from protocol.trace import TraceEvent, TraceKind


def maybe_prepare_rebalance(
    turn: Turn, group: Group, *, cause: str, member_id: str | None = None
) -> None:
    """Start a rebalance, unless the group is rebalancing already (or Dead)."""
    if group.can_rebalance:
        prepare_rebalance(turn, group, cause=cause, member_id=member_id)


def prepare_rebalance(
    turn: Turn, group: Group, *, cause: str, member_id: str | None = None
) -> None:
    """Start a rebalance: `cause` is for people, `member_id` the member that caused it."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    clear_sync(turn, group)
    was_empty = group.state is GroupState.EMPTY
    turn.trace(
        TraceEvent(
            kind=TraceKind.REBALANCE_STARTED,
            group=group.group_id,
            member=member_id,
            generation=group.generation_id,
            cause=cause,
        )
    )
    _transition(turn, group, GroupState.PREPARING_REBALANCE, cause)
    if was_empty:
        initial = initial_join(turn, group)
        schedule_join(turn, group, initial, initial.delay_ms)
    else:
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        try_complete_join(turn, group)


def try_complete_join(turn: Turn, group: Group, *, cause: str = "all members joined") -> None:
    """Complete the join phase if it need not wait any longer; `cause` says why, for people.

    An initial join phase always waits; one whose completion failed is never completed.
    """
    if isinstance(group.delayed_join, DelayedJoin) and group.has_all_members_joined:
        complete_join(turn, group, cause=cause if group.members else "no member is left")


def complete_join(turn: Turn, group: Group, *, cause: str) -> None:
    """End the join phase: drop who did not rejoin, begin the next generation, answer everyone.

    If nobody rejoined and only static members are left, the phase goes on instead, until their
    session timers end it.

    Raises: UnknownServerError if the generation cannot begin: the group then stays in
        PreparingRebalance with nothing to complete it, as in Kafka (BEHAVIOUR 0.1).
    """
    cancel_join(turn, group)
    for member in tuple(group.members.values()):
        if member.awaiting_join is None and not member.is_static:
            drop_member(turn, group, member, cause="did not rejoin")
    if not group.elect_joined_leader() and group.members:
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        return
    group.init_next_generation(now_us=turn.now_us, cause=cause, trace=turn.result.trace)
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


def drop_member(turn: Turn, group: Group, member: Member, *, cause: str) -> None:
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


def remove_member(turn: Turn, group: Group, member: Member, *, cause: str, reason: str) -> None:
    """Take a member out and rebalance, or complete the join phase that waited for it.

    `cause` is a short word for MEMBER_REMOVED, `reason` the sentence for REBALANCE_STARTED.
    """
    fail_parked_join(turn, group, member, "", ErrorCode.UNKNOWN_MEMBER_ID)
    drop_member(turn, group, member, cause=cause)
    match group.state:
        case GroupState.DEAD | GroupState.EMPTY:
            pass
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            maybe_prepare_rebalance(turn, group, cause=reason, member_id=member.member_id)
        case GroupState.PREPARING_REBALANCE:
            try_complete_join(turn, group, cause=f"{cause} of the last member that had not joined")


def remove_pending_member(turn: Turn, group: Group, member_id: str, *, cause: str) -> None:
    """Forget an id that was given out, and complete the join phase if it was the last to wait.

    `cause` is a short word, as in `remove_member`.
    """
    group.remove(member_id)
    cancel_heartbeat(turn, group, member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete_join(turn, group, cause=f"{cause} of the last member id that had not joined")


def _transition(turn: Turn, group: Group, target: GroupState, cause: str) -> None:
    group.transition_to(target, now_us=turn.now_us, cause=cause, trace=turn.result.trace)
