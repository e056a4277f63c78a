"""The join phase of a rebalance: its beginning, its completion, and the removal of members.

A rebalance has two halves. In the join phase (state PreparingRebalance) the members send JoinGroup.
Then the next generation begins, and in the sync phase (CompletingRebalance) they send SyncGroup to
get their assignments. `prepare_rebalance` begins the join phase. JoinGroups are then parked: kept
without an answer. `complete_join` ends the phase, begins the next generation, and answers the
parked JoinGroups. If the join phase waits only for one member and that member is removed, the
removal completes the phase. Kafka does each of these steps under the group's lock; here each is
part of one turn (the handling of one input).

- Generation: the number of the rebalance; members name it in their requests.
- `group.delayed_join`: what may complete the join phase.
  - DelayedJoin: the JoinGroup of the last missing member, or the timer.
  - InitialDelayedJoin: only the timer. The first join phase of an Empty group has it.
  - None: nothing.
- Pending member id: an id that the coordinator gave a client (MEMBER_ID_REQUIRED). The client has
  not joined with it yet.
- Static member: a member with a configured `group.instance.id`; it keeps its place when it
  restarts.
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
    """The reason of a rebalance; the content of the trace row REBALANCE_STARTED.

    cause: the kind of reason, for programs.
    text: a sentence for people.
    member_id: the member that caused the rebalance, None if no single member did.
    client_reason: the reason in that member's request (KIP-800), None if the request gave none.
    silent_members: the members that sent no SyncGroup before the deadline.
    error: the log's error if the cause is an assignment that could not be stored, else None.
    """

    cause: RebalanceCause
    text: str
    member_id: str | None = None
    client_reason: str | None = None
    silent_members: tuple[str, ...] = ()
    error: ErrorCode | None = None

    def detail(self) -> dict[str, object] | None:
        """Return the fields that have no column in the trace, None if all of them are empty."""
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

    `what` is a clause for people, such as "member m joined".
    """
    return RebalanceReason(
        cause=cause,
        # An empty reason is treated as no reason.
        text=f"{what}; client reason: {client_reason or 'not provided'}",
        member_id=member_id,
        client_reason=client_reason or None,
    )


def maybe_prepare_rebalance(turn: Turn, group: Group, reason: RebalanceReason) -> None:
    """Start a rebalance unless the group is in a join phase already, or Dead.

    `group.can_rebalance` is False in these two states.
    """
    if group.can_rebalance:
        prepare_rebalance(turn, group, reason)


def prepare_rebalance(turn: Turn, group: Group, reason: RebalanceReason) -> None:
    """Start a rebalance: enter PreparingRebalance and set when the join phase completes."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        # Members that wait for the assignment of this generation must rejoin instead.
        reset_assignments(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    # The group no longer waits for SyncGroups of the generation that ends now.
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
        # The group had no members. It first waits for more (group.initial.rebalance.delay.ms).
        initial = initial_join(turn, group)
        schedule_join(turn, group, initial, initial.delay_ms)
    else:
        # `try_complete_join` completes the phase immediately if nobody is missing. This happens in
        # a group with one member whose JoinGroup has begun the rebalance.
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        try_complete_join(turn, group)


def try_complete_join(
    turn: Turn,
    group: Group,
    *,
    cause: GroupStateCause = GroupStateCause.ALL_JOINED,
    cause_text: str | None = None,
) -> None:
    """Complete the join phase if every member has joined.

    Only its timer completes an initial join phase, so this function does nothing in that phase. It
    also does nothing if `complete_join` has raised an exception in this phase: `group.delayed_join`
    is None since then.
    `cause`, `cause_text`: why the group changes its state now. They are ignored in a group without
    members, where the cause is NO_MEMBER_LEFT.
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
    """End the join phase: drop members that did not rejoin, begin the next generation, answer.

    Raises: UnknownServerError, from `init_next_generation`, if the generation cannot begin. The
        group then stays in PreparingRebalance with nothing to complete it, as in Kafka (BEHAVIOUR
        0.1).
    """
    cancel_join(turn, group)
    for member in tuple(group.members.values()):  # a copy: `drop_member` removes members
        # A static member keeps its place while it restarts; only its session timer removes it.
        if member.awaiting_join is None and not member.is_static:
            drop_member(turn, group, member, cause=RemovalCause.DID_NOT_REJOIN)

    # `elect_joined_leader` replaces a leader that has not rejoined. It returns False if no member
    # has rejoined.
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none has rejoined, so no leader could compute an
        # assignment. The join phase continues until one rejoins or all of them expire.
        schedule_join(turn, group, DelayedJoin(), group.rebalance_timeout_ms)
        return

    group.init_next_generation(
        now_us=turn.now_us, cause=cause, cause_text=cause_text, trace=turn.result.trace
    )
    if group.state is GroupState.EMPTY:
        # No member is left, so the generation began in the state Empty. A group with members is
        # stored when its leader sends the assignment; this group has no leader and is stored now.
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

    # Answer the members that have rejoined, and give every member time for its SyncGroup.
    for member in group.members.values():
        response = current_generation(group, member.member_id)
        # Answers, and returns True, if the member's JoinGroup is parked.
        if answer_parked_join(turn, group, member, response):
            restart_session(turn, group, member, Api.JOIN_GROUP)
        else:
            # A static member that has not rejoined. Its timer restarts without a request, so the
            # trace must not get a row SESSION_RESTARTED, which `restart_session` writes.
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
    """Answer the member's SyncGroup and restart its session timer, if a SyncGroup is parked."""
    # Without the restart the member might never expire:
    # 1. Its SyncGroup is parked.
    # 2. Its session timer fires. That is ignored, because a parked member cannot expire.
    # 3. Its SyncGroup is answered. No timer runs now.
    if answer_parked_sync(turn, group, member, response):
        restart_session(turn, group, member, Api.SYNC_GROUP)


def drop_member(turn: Turn, group: Group, member: Member, *, cause: RemovalCause) -> None:
    """Remove a member and its timer; the group's state does not change."""
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
    """Remove a member; then rebalance, or complete the join phase if it waited for the member."""
    # A parked JoinGroup must be answered before its member is gone. The answer names no member id
    # (""), so that the client joins as a new member.
    fail_parked_join(turn, group, member, "", ErrorCode.UNKNOWN_MEMBER_ID)
    drop_member(turn, group, member, cause=cause)
    match group.state:
        case GroupState.DEAD | GroupState.EMPTY:
            pass  # not reached, since no member is removed in these states; listed as in Kafka
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            maybe_prepare_rebalance(turn, group, reason)
        case GroupState.PREPARING_REBALANCE:
            try_complete_join(
                turn,
                group,
                cause=GroupStateCause.LAST_MISSING_WENT,
                # For example "session expiry of the last member that had not joined".
                cause_text=f"{cause} of the last member that had not joined",
            )


def remove_pending_member(turn: Turn, group: Group, member_id: str, *, cause: RemovalCause) -> None:
    """Forget a pending member id; complete the join phase if it waited only for this id."""
    group.remove(member_id)
    cancel_heartbeat(turn, group, member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete_join(
            turn,
            group,
            cause=GroupStateCause.LAST_MISSING_WENT,
            cause_text=f"{cause} of the last member id that had not joined",
        )
