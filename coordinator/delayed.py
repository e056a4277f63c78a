"""Timers of a group and its members: start, restart, stop.

A timer has a key: `join-<group>`, `sync-<group>` or `heartbeat-<group>-<member>`. Setting a timer
whose key is in use replaces the earlier timer. `timer_handlers` says what happens when a timer
fires. Kafka has a delayed operation in place of each timer.

- Turn: the handling of one input; timers and trace rows go through it.
- Generation: the number of a group's rebalance; a rebalance gives the members new partitions.
- Join phase: the time in the state PreparingRebalance, in which members send JoinGroup. The value
  of `group.delayed_join` says when the phase may complete: DelayedJoin when every member has
  joined, InitialDelayedJoin only after a delay.
- Parked: of a request, kept without an answer; of a member, having a parked request.
- Pending member id: an id that a client got with the error MEMBER_ID_REQUIRED and that no member
  uses yet.
Source: Kafka `DelayedJoin`, `DelayedSync`, `DelayedHeartbeat`; docs/kafka/BEHAVIOUR.md 3.
"""

from coordinator.group import DelayedJoin, Group, InitialDelayedJoin
from coordinator.member import Member
from coordinator.states import GroupState
from coordinator.turn import JoinTimer, PendingMemberTimer, SessionTimer, SyncTimer, Turn
from protocol.api import Api
from protocol.trace import TraceEvent, TraceKind

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Longest time that a new member's first JoinGroup is kept without an answer. The session timeout
cannot limit this time: the client does not know its member id yet, and so it sends no heartbeats.
Source: Kafka `GroupCoordinator.NewMemberJoinTimeoutMs`."""


def schedule_join(
    turn: Turn, group: Group, operation: DelayedJoin | InitialDelayedJoin, delay_ms: int
) -> None:
    """Set `group.delayed_join` to `operation`, and start the join phase's timer."""
    group.delayed_join = operation
    turn.set_timer(_join_key(group), JoinTimer(group), delay_ms)


def cancel_join(turn: Turn, group: Group) -> None:
    """Stop the join phase's timer; the phase cannot complete before `schedule_join` is called."""
    group.delayed_join = None
    turn.cancel_timer(_join_key(group))


def initial_join(turn: Turn, group: Group) -> InitialDelayedJoin:
    """Return the value of `group.delayed_join` for an Empty group's first join phase.

    The wait of group.initial.rebalance.delay.ms lets the members of a new group arrive before the
    first generation begins. Without it, each new member would cause a rebalance. `remaining_ms`:
    the part of the rebalance timeout that is left after the wait.
    """
    delay_ms = turn.config.group_initial_rebalance_delay_ms
    return InitialDelayedJoin(
        delay_ms=delay_ms, remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0)
    )


def extended_initial_join(turn: Turn, join: InitialDelayedJoin) -> InitialDelayedJoin:
    """Return the next InitialDelayedJoin, since a member joined during the delay of `join`."""
    # `remaining_ms` is reduced by the delay that has just run out, not by the new one, as in Kafka.
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
    """Stop the sync timer if every member has sent SyncGroup; otherwise do nothing.

    Named after Kafka's attempt to complete the operation DelayedSync.
    """
    if not group.pending_sync_members:
        turn.cancel_timer(_sync_key(group))


def clear_sync(turn: Turn, group: Group) -> None:
    """Stop the sync timer, and no longer wait for any member's SyncGroup."""
    group.pending_sync_members.clear()
    turn.cancel_timer(_sync_key(group))


def restart_session(turn: Turn, group: Group, member: Member, request: Api) -> None:
    """Restart the member's session, and trace this; `request` is the API of its new request."""
    # The checkers need these rows: an expiry is legal only if the member's last row is older than
    # its session timeout.
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
    """Start the member's session timeout from now; stop its timer if the member cannot expire.

    Source: Kafka `completeAndScheduleNextHeartbeatExpiration`.
    """
    if group.state is GroupState.DEAD or member.outlives_session_timeout:
        # A Dead group has no sessions. A parked member needs no timer: one is started when its
        # request is answered. Kafka creates a delayed operation here, and completes it immediately.
        turn.cancel_timer(member.heartbeat_key)
    else:
        timer = SessionTimer(group, member.member_id)
        turn.set_timer(member.heartbeat_key, timer, member.session_timeout_ms)


def ensure_session_timer(turn: Turn, group: Group, member: Member) -> None:
    """Start the member's session timer if none runs.

    DEVIATION: Kafka starts none here, so that a static member may never expire:
    1. A static member is replaced; its new id is being stored, and its JoinGroup is parked.
    2. Its session timer fires, and is ignored because the member is parked.
    3. The append completes later than the session timeout. No timer runs, and none is started.
    """
    if not turn.has_timer(member.heartbeat_key):
        restart_session_timer(turn, group, member)


def schedule_new_member_timer(turn: Turn, group: Group, member: Member) -> None:
    """Bound a new member's first JoinGroup by five minutes instead of its session timeout."""
    timer = SessionTimer(group, member.member_id)
    turn.set_timer(member.heartbeat_key, timer, NEW_MEMBER_JOIN_TIMEOUT_MS)


def schedule_pending_member_timer(
    turn: Turn, group: Group, member_id: str, session_timeout_ms: int
) -> None:
    """Expire a pending member id unless its client joins with it within one session timeout."""
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
