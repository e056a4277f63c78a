"""Handlers of fired timers: the ends of join phases, SyncGroup deadlines and sessions.

A timer can fire too late. By then the group may be Dead, the generation over, or the member
removed, replaced or parked. Each handler checks for this first, and does nothing in that case.

- Timer: data, namely the group, and the member or generation that the timer was set for.
- Parked: of a member, having a JoinGroup or SyncGroup that is kept without an answer.
- `group.delayed_join`: tells what the timer of the join phase measures. For a DelayedJoin it is the
  rebalance timeout. For an InitialDelayedJoin, which only the first join phase of an Empty group
  has, it is a delay. If new members join during the delay, another delay follows.
- Turn: the handling of one input; replies and timers go through it.
Source: Kafka `InitialDelayedJoin.onComplete`, `onExpirePendingSync`, `onExpireHeartbeat`;
docs/kafka/BEHAVIOUR.md 3.3 to 3.5.
"""

from coordinator.delayed import extended_initial_join, schedule_join
from coordinator.group import Group, InitialDelayedJoin
from coordinator.rebalance import (
    RebalanceReason,
    complete_join,
    drop_member,
    prepare_rebalance,
    remove_member,
    remove_pending_member,
)
from coordinator.states import GroupState
from coordinator.turn import (
    GroupTimer,
    JoinTimer,
    PendingMemberTimer,
    SessionTimer,
    SyncTimer,
    Turn,
)
from protocol.causes import GroupStateCause, RebalanceCause, RemovalCause


def expire(turn: Turn, timer: GroupTimer) -> None:
    """Carry out a timer that fired.

    Raises: UnknownServerError if the next generation cannot begin.
    """
    if timer.group.state is GroupState.DEAD:
        return
    match timer:
        case JoinTimer():
            _expire_join(turn, timer.group)
        case SyncTimer():
            _expire_sync(turn, timer.group, timer.generation_id)
        case SessionTimer():
            _expire_session(turn, timer.group, timer.member_id)
        case PendingMemberTimer():
            # An id that is no longer pending was used meanwhile: a member has joined with it.
            if timer.member_id in timer.group.pending_members:
                remove_pending_member(
                    turn, timer.group, timer.member_id, cause=RemovalCause.SESSION_EXPIRY
                )


def _expire_join(turn: Turn, group: Group) -> None:
    """Complete the join phase, or extend the initial delay of a new group."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    join = group.delayed_join
    if isinstance(join, InitialDelayedJoin):
        # If a member joined during this delay, more members may be on their way, so the group waits
        # once more. `remaining_ms` is what the rebalance timeout leaves for further delays.
        if group.new_member_added and join.remaining_ms != 0:
            group.new_member_added = False
            extended = extended_initial_join(turn, join)
            schedule_join(turn, group, extended, extended.delay_ms)
        else:
            complete_join(turn, group, cause=GroupStateCause.INITIAL_DELAY_OVER)
    else:
        complete_join(turn, group, cause=GroupStateCause.REBALANCE_TIMEOUT)


def _expire_sync(turn: Turn, group: Group, generation_id: int) -> None:
    """Remove the members that sent no SyncGroup in time, and rebalance."""
    # Stable is included: the leader's assignment is stored, and a follower may still owe its
    # SyncGroup. In the other states the generation of the deadline is over.
    if (
        generation_id != group.generation_id
        or group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        or not group.pending_sync_members
    ):
        return
    silent = tuple(group.pending_sync_members)  # a copy: `drop_member` removes ids
    for member_id in silent:
        # A static member that restarts gets a new id, but its old id stays in
        # `pending_sync_members`, as in Kafka. The old id has no member, so none is removed.
        member = group.members.get(member_id)
        if member is not None:
            drop_member(turn, group, member, cause=RemovalCause.SYNC_DEADLINE)
    prepare_rebalance(
        turn,
        group,
        RebalanceReason(
            cause=RebalanceCause.NO_SYNC_GROUP,
            text=f"no SyncGroup from {', '.join(silent)}",
            member_id=silent[0],  # the trace's column has one member; `silent_members` has all
            silent_members=silent,
        ),
    )


def _expire_session(turn: Turn, group: Group, member_id: str) -> None:
    """Remove a member whose session has ended, unless a request of the member is parked."""
    member = group.members.get(member_id)
    if member is None or member.outlives_session_timeout:
        return
    remove_member(
        turn,
        group,
        member,
        cause=RemovalCause.SESSION_EXPIRY,
        reason=RebalanceReason(
            cause=RebalanceCause.SESSION_EXPIRY,
            text=f"member {member_id} expired: no heartbeat",
            member_id=member_id,
        ),
    )
