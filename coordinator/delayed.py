"""Delayed operations: which timers a group and its members run, and when they are restarted.

Kafka keeps delayed operations in two purgatories; here each is a timer with a key of its own, and
setting the same key again replaces it: `join-<group>`, `sync-<group>`,
`heartbeat-<group>-<member>`. `timer_handlers` has what happens when one fires.
Source: Kafka `DelayedJoin`, `DelayedSync`, `DelayedHeartbeat`; BEHAVIOUR 3.
"""

from coordinator.group import DelayedJoin, Group, InitialDelayedJoin
from coordinator.member import Member
from coordinator.states import GroupState
from coordinator.turn import JoinTimer, PendingMemberTimer, SessionTimer, SyncTimer, Turn
from protocol.api import Api
from protocol.trace import TraceEvent, TraceKind

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may be parked in JoinGroup: it has no id to heartbeat with.
Source: Kafka `GroupCoordinator.NewMemberJoinTimeoutMs`."""


def schedule_join(
    turn: Turn, group: Group, operation: DelayedJoin | InitialDelayedJoin, delay_ms: int
) -> None:
    """Let `operation` complete the join phase, after `delay_ms` at the latest."""
    group.delayed_join = operation
    turn.set_timer(_join_key(group), JoinTimer(group), delay_ms)


def cancel_join(turn: Turn, group: Group) -> None:
    """Forget what would have completed the join phase."""
    group.delayed_join = None
    turn.cancel_timer(_join_key(group))


def initial_join(turn: Turn, group: Group) -> InitialDelayedJoin:
    """Return the operation of an Empty group's first join phase."""
    delay_ms = turn.config.group_initial_rebalance_delay_ms
    return InitialDelayedJoin(
        delay_ms=delay_ms, remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0)
    )


def extended_initial_join(turn: Turn, join: InitialDelayedJoin) -> InitialDelayedJoin:
    """Return the operation that follows `join` because a member came during its wait."""
    return InitialDelayedJoin(
        delay_ms=min(turn.config.group_initial_rebalance_delay_ms, join.remaining_ms),
        remaining_ms=max(join.remaining_ms - join.delay_ms, 0),
    )


def schedule_sync(turn: Turn, group: Group) -> None:
    """Give the members of this generation the rebalance timeout to send SyncGroup."""
    turn.set_timer(
        _sync_key(group), SyncTimer(group, group.generation_id), group.rebalance_timeout_ms
    )


def complete_sync(turn: Turn, group: Group) -> None:
    """Stop the sync deadline if everyone has sent SyncGroup."""
    if not group.pending_sync_members:
        turn.cancel_timer(_sync_key(group))


def clear_sync(turn: Turn, group: Group) -> None:
    """Forget who owes a SyncGroup, and the deadline."""
    group.pending_sync_members.clear()
    turn.cancel_timer(_sync_key(group))


def restart_session(turn: Turn, group: Group, member: Member, request: Api) -> None:
    """Give the member a session timeout from now, because a request of the member was received.

    The trace shows each: whether a session ended too early is judged by these rows.
    """
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
    """Give the member a session timeout from now.

    A member that is parked, and not in its first join phase, needs no timer: its answer starts
    one (Kafka creates the operation, and it completes at once).
    Source: Kafka `completeAndScheduleNextHeartbeatExpiration`.
    """
    if group.state is GroupState.DEAD or member.outlives_session_timeout:
        turn.cancel_timer(member.heartbeat_key)
    else:
        timer = SessionTimer(group, member.member_id)
        turn.set_timer(member.heartbeat_key, timer, member.session_timeout_ms)


def ensure_session_timer(turn: Turn, group: Group, member: Member) -> None:
    """Start the member's session timer if none runs.

    DEVIATION: in Kafka a static member whose timer ended while its new id was being stored has
    none, and is never expired; that takes an append slower than the session timeout.
    """
    if not turn.has_timer(member.heartbeat_key):
        restart_session_timer(turn, group, member)


def schedule_new_member_timer(turn: Turn, group: Group, member: Member) -> None:
    """Give a new member five minutes in its first JoinGroup, whatever its session timeout."""
    timer = SessionTimer(group, member.member_id)
    turn.set_timer(member.heartbeat_key, timer, NEW_MEMBER_JOIN_TIMEOUT_MS)


def schedule_pending_member_timer(
    turn: Turn, group: Group, member_id: str, session_timeout_ms: int
) -> None:
    """Give a client one session timeout to come back with the id that it was given."""
    turn.set_timer(
        heartbeat_key(group, member_id), PendingMemberTimer(group, member_id), session_timeout_ms
    )


def cancel_heartbeat(turn: Turn, group: Group, member_id: str) -> None:
    """Stop the timer of a member or pending id."""
    turn.cancel_timer(heartbeat_key(group, member_id))


def cancel_all(turn: Turn, group: Group) -> None:
    """Stop every timer of a group that is Dead."""
    cancel_join(turn, group)
    clear_sync(turn, group)
    for member_id in (*group.members, *group.pending_members):
        cancel_heartbeat(turn, group, member_id)


def heartbeat_key(group: Group, member_id: str) -> str:
    """Return the key of the timer of a member or pending id."""
    return f"heartbeat-{group.group_id}-{member_id}"


def _join_key(group: Group) -> str:
    return f"join-{group.group_id}"


def _sync_key(group: Group) -> str:
    return f"sync-{group.group_id}"
