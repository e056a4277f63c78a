"""Timers of a group and its members: start, restart, stop.

There are three kinds of timers, each with its key:
- `join-<group>` ends the join phase of a rebalance, in which the members send JoinGroup;
- `sync-<group>` ends the wait for the members' SyncGroups after that;
- `heartbeat-<group>-<member>` removes a silent member. A pending member id has such a timer, too: a
  member id is pending from the answer MEMBER_ID_REQUIRED until the client joins with this id.

A timer that is set again starts anew. `timer_handlers` says what happens when a timer fires. The
functions here set and cancel timers through the turn, which is the handling of one input. In Kafka,
a timer together with the condition that ends its wait early is called a delayed operation.

Source: Kafka `DelayedJoin`, `DelayedSync`, `DelayedHeartbeat`; docs/kafka/BEHAVIOUR.md 3.
"""

from coordinator.group import DelayedJoin, Group, InitialDelayedJoin
from coordinator.member import Member
from coordinator.states import GroupState
from coordinator.turn import JoinTimer, PendingMemberTimer, SessionTimer, SyncTimer, Turn
from protocol.api import Api
from protocol.trace import TraceEvent, TraceKind

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Longest time for which the first JoinGroup of a new member is kept without an answer. The session
timeout cannot limit this time, because the client sends no heartbeats before it has its answer.
Source: Kafka `GroupCoordinator.NewMemberJoinTimeoutMs`."""


def schedule_join(
    turn: Turn, group: Group, operation: DelayedJoin | InitialDelayedJoin, delay_ms: int
) -> None:
    """Start the join phase's timer. `operation` says what else may end the phase."""
    group.delayed_join = operation
    turn.set_timer(_join_key(group), JoinTimer(group), delay_ms)


def cancel_join(turn: Turn, group: Group) -> None:
    """Stop the join phase's timer. Nothing ends the phase until `schedule_join` is called again."""
    group.delayed_join = None
    turn.cancel_timer(_join_key(group))


def initial_join(turn: Turn, group: Group) -> InitialDelayedJoin:
    """Return the value of `group.delayed_join` for an Empty group's first join phase.

    The first generation begins only after a delay of group.initial.rebalance.delay.ms. During the
    delay the other members of a new group can join. Without the delay, each of these members would
    cause a rebalance. `remaining_ms` is the part of the rebalance timeout that is left after the
    delay.
    """
    delay_ms = turn.config.group_initial_rebalance_delay_ms
    return InitialDelayedJoin(
        delay_ms=delay_ms, remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0)
    )


def extended_initial_join(turn: Turn, join: InitialDelayedJoin) -> InitialDelayedJoin:
    """Return the InitialDelayedJoin that follows `join`, because a member joined during its delay.

    Example: a delay of 3 s, a rebalance timeout of 10 s, and members that keep coming. Then the
    delays are 3, 3, 3 and 1 s.
    """
    # As in Kafka, `remaining_ms` is reduced by the delay that is just over, not by the delay that
    # begins now.
    return InitialDelayedJoin(
        delay_ms=min(turn.config.group_initial_rebalance_delay_ms, join.remaining_ms),
        remaining_ms=max(join.remaining_ms - join.delay_ms, 0),
    )


def schedule_sync(turn: Turn, group: Group) -> None:
    """Start the timer that ends the wait for SyncGroups, after the rebalance timeout."""
    turn.set_timer(
        _sync_key(group), SyncTimer(group, group.generation_id), group.rebalance_timeout_ms
    )


def complete_sync(turn: Turn, group: Group) -> None:
    """Stop the sync timer if every member has sent SyncGroup. Otherwise do nothing."""
    if not group.pending_sync_members:
        turn.cancel_timer(_sync_key(group))


def clear_sync(turn: Turn, group: Group) -> None:
    """Stop the sync timer, and no longer wait for any member's SyncGroup."""
    group.pending_sync_members.clear()
    turn.cancel_timer(_sync_key(group))


def restart_session(turn: Turn, group: Group, member: Member, request: Api) -> None:
    """Restart the session of a member. `request` is the API of the request that it has sent."""
    # The row is for a check of the recorded run: a member may expire only if its last row of this
    # kind is older than its session timeout.
    turn.trace(
        TraceEvent(
            kind=TraceKind.SESSION_RESTARTED,
            group=group.group_id,
            member=member.member_id,
            generation=group.generation_id,
            api=request.label,
            detail={"session_timeout_ms": member.session_timeout_ms},
        )
    )
    restart_session_timer(turn, group, member)


def restart_session_timer(turn: Turn, group: Group, member: Member) -> None:
    """Let the member's session timeout begin now, or stop its timer if the member cannot expire.

    Source: Kafka `completeAndScheduleNextHeartbeatExpiration`.
    """
    if group.state is GroupState.DEAD or member.outlives_session_timeout:
        # A Dead group has no sessions. A member whose request is parked needs no timer now: the
        # answer to the request will start the timer. Kafka creates a delayed operation that is
        # complete at once.
        turn.cancel_timer(member.heartbeat_key)
    else:
        timer = SessionTimer(group, member.member_id)
        turn.set_timer(member.heartbeat_key, timer, member.session_timeout_ms)


def ensure_session_timer(turn: Turn, group: Group, member: Member) -> None:
    """Start the member's session timer if none runs.

    DEVIATION: Kafka does not do this. In Kafka a static member may stay in the group for ever:
    1. The member restarts. Its JoinGroup is parked while the new member id is being stored.
    2. Its session timer fires. The coordinator ignores this, because the JoinGroup is parked.
    3. The append completes. No timer of the member runs now, and Kafka starts none.
    """
    if not turn.has_timer(member.heartbeat_key):
        restart_session_timer(turn, group, member)


def schedule_new_member_timer(turn: Turn, group: Group, member: Member) -> None:
    """Start the timer of a new member: five minutes instead of its session timeout."""
    timer = SessionTimer(group, member.member_id)
    turn.set_timer(member.heartbeat_key, timer, NEW_MEMBER_JOIN_TIMEOUT_MS)


def schedule_pending_member_timer(
    turn: Turn, group: Group, member_id: str, session_timeout_ms: int
) -> None:
    """Start the timer that drops a pending member id, unless the client joins in time."""
    turn.set_timer(
        heartbeat_key(group, member_id), PendingMemberTimer(group, member_id), session_timeout_ms
    )


def cancel_heartbeat(turn: Turn, group: Group, member_id: str) -> None:
    """Stop the timer of a member or pending member id."""
    turn.cancel_timer(heartbeat_key(group, member_id))


def cancel_all(turn: Turn, group: Group) -> None:
    """Stop every timer of a group that is Dead."""
    cancel_join(turn, group)
    clear_sync(turn, group)
    for member_id in (*group.members, *group.pending_members):
        cancel_heartbeat(turn, group, member_id)


def heartbeat_key(group: Group, member_id: str) -> str:
    """Return the key of the timer of a member or pending member id."""
    return f"heartbeat-{group.group_id}-{member_id}"


def _join_key(group: Group) -> str:
    return f"join-{group.group_id}"


def _sync_key(group: Group) -> str:
    return f"sync-{group.group_id}"
