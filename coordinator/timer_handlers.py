"""What happens when a timer fires: a join phase ends, or a silent member is removed.

`delayed` sets these timers. A timer can fire although it is no longer needed. For example, the
member has left, or the generation for which the timer was set is over. Each handler first checks
whether its timer is still needed. If not, the handler does nothing.

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
    """Do the work for which a timer was set, because the timer has fired.

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
            # If the id is not pending any more, the client has joined with this id in time.
            if timer.member_id in timer.group.pending_members:
                remove_pending_member(
                    turn, timer.group, timer.member_id, cause=RemovalCause.SESSION_EXPIRY
                )


def _expire_join(turn: Turn, group: Group) -> None:
    """End the join phase. In a new group, wait for another delay if members keep coming."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    join = group.delayed_join
    if isinstance(join, InitialDelayedJoin):
        # If a member joined during the delay that is over now, more members may be on their way. So
        # the group waits for another delay, if the rebalance timeout leaves time (`remaining_ms`).
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
    # The timer matters only in the generation for which it was set. This generation lasts in the
    # states CompletingRebalance and Stable: a follower's SyncGroup may still be missing after the
    # leader's assignment was stored.
    if (
        generation_id != group.generation_id
        or group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        or not group.pending_sync_members
    ):
        return
    silent = tuple(group.pending_sync_members)  # a copy: `drop_member` removes ids
    for member_id in silent:
        # `member` is None if a static member has restarted. Then the member has a new id, but its
        # old id stays in `pending_sync_members`, as in Kafka.
        member = group.members.get(member_id)
        if member is not None:
            drop_member(turn, group, member, cause=RemovalCause.SYNC_DEADLINE)
    prepare_rebalance(
        turn,
        group,
        RebalanceReason(
            cause=RebalanceCause.NO_SYNC_GROUP,
            text=f"no SyncGroup from {', '.join(silent)}",
            member_id=silent[0],  # this field is for one member; `silent_members` has all of them
            silent_members=silent,
        ),
    )


def _expire_session(turn: Turn, group: Group, member_id: str) -> None:
    """Remove a member that was silent for its session timeout.

    A member whose request is parked stays, because its client rightly waits for the answer. Only a
    new member is removed even then: its timer limits its first join phase to five minutes.
    """
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
