"""Invariants of the group coordinator. They are true whenever no input is handled.

Tests and experiments call these checks after an input. The docstring of each check says what must
be true. Otherwise the check raises InvariantViolation with the invariant's name and evidence. For
example, a group that counts its parked members wrongly raises "members_awaiting_join" with the text
"g: 1 members are parked, 2 counted".

In all checks, `timers` has the running timers by their keys, and `appends` has the appends in
flight by their ids. The values of both say what the coordinator does when the timer fires or the
append completes. A request is parked while it waits for the end of a join or sync phase. A request
is held while it waits for the high watermark, as in Kafka's Java coordinator.
"""

from collections.abc import Mapping

from coordinator.delayed import heartbeat_key
from coordinator.group import DelayedJoin, Group
from coordinator.shard import Shard, Shards
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import HeldHeartbeat
from coordinator.turn import (
    CoordinatorTimer,
    HeldWriteTimer,
    OffsetsAppend,
    PendingAppend,
    PendingVerification,
    StaticMemberAppend,
    TransactionalOffsetsAppend,
)
from protocol.errors import InvariantViolation
from protocol.ids import AppendId, RequestId


def check_group(group: Group) -> None:
    """A group's fields agree with each other.

    The group's counts and ids agree with its members, and it waits only for what its state allows.
    """
    _check_counts(group)
    _check_ids(group)
    _check_state(group)
    _check_parked(group)
    _check_pending_sync(group)


def check_shard(shard: Shard) -> None:
    """Every group is stored under its own id, in the shard of its partition, and none is Dead.

    If a group waits for the end of a producer's transaction, the shard knows this. Otherwise the
    shard could not find the group when the transaction ends.
    """
    for group_id, group in shard.groups.items():
        _require(
            group.group_id == group_id and group.partition == shard.partition,
            "group_in_its_shard",
            f"{group.group_id} of partition {group.partition} is stored as {group_id} "
            f"in shard {shard.partition}",
        )
        _require(group.state is not GroupState.DEAD, "no_dead_group", f"{group_id} is Dead")
        for producer_id in group.offsets.producers():
            _require(
                shard.knows_producer(producer_id, group),
                "marker_finds_its_group",
                f"{group_id} waits for the transaction of producer {producer_id} in vain",
            )
        check_group(group)


def check_shards(shards: Shards, timers: Mapping[str, CoordinatorTimer]) -> None:
    """Each partition has one state, each wait has a timer, and each timer belongs to a wait.

    - A partition is loaded (`owned`), or being loaded, or its load has failed, but never two of
      these.
    - A timer ends every wait of a group, and the wait of every held answer.
    - A timer's group or answer still exists.
    """
    for partition in (*shards.owned, *shards.loading):
        _require(
            partition not in shards.failed,
            "here_or_failed",
            f"the load of partition {partition} has failed, and it is owned or loading",
        )
    for partition, shard in shards.owned.items():
        _require(
            partition not in shards.loading,
            "owned_or_loading",
            f"partition {partition} is owned and loading",
        )
        check_shard(shard)
        for group in shard.groups.values():
            _check_timers(group, timers)
        _check_held(shard, timers)
    for key, timer in timers.items():
        if isinstance(timer, HeldWriteTimer):
            _require(
                shards.owned.get(timer.shard.partition) is timer.shard
                and key in timer.shard.above_high_watermark.held,
                "timer_of_held_write",
                f"{key} runs, and nothing waits",
            )
            continue
        shard_of_timer = shards.owned.get(timer.group.partition)
        _require(
            shard_of_timer is not None
            and shard_of_timer.groups.get(timer.group.group_id) is timer.group,
            "timer_of_live_group",
            f"{key} runs for {timer.group.group_id}, which is not here",
        )


def check_appends(shards: Shards, appends: Mapping[AppendId, PendingAppend]) -> None:
    """Every unfinished commit has an append in flight. Otherwise it would never be finished.

    The reverse need not be true: an append may belong to a group that was unloaded meanwhile.
    """
    for group in shards.groups():
        # Pairs of a producer id and a topic partition, for each offset of this group that the
        # appends in flight write. The producer id is None for a commit outside transactions.
        being_written = {
            (append.producer_id if isinstance(append, TransactionalOffsetsAppend) else None, name)
            for append in appends.values()
            if isinstance(append, OffsetsAppend | TransactionalOffsetsAppend)
            and append.group is group
            for name in append.values
        }
        for name in group.offsets.being_appended():
            _require(
                (None, name) in being_written,
                "pending_commit_is_written",
                f"{group.group_id}: a commit of {name} waits, and nothing is being appended",
            )
        for producer_id, name in group.offsets.being_appended_in_transactions():
            _require(
                (producer_id, name) in being_written,
                "pending_commit_is_written",
                f"{group.group_id}: a commit of {name} by producer {producer_id} waits, and "
                "nothing is being appended",
            )


def waiting_requests(
    shards: Shards,
    appends: Mapping[AppendId, PendingAppend],
    verifications: Mapping[int, PendingVerification],
) -> frozenset[RequestId]:
    """Return the requests that have no answer yet, but will get one.

    Such a request is a parked JoinGroup or SyncGroup, or it waits for its append, for the
    verification of its transaction, or for the high watermark.
    """
    # Here `held` has every request that waits, also the parked requests.
    held: list[RequestId] = [verification.request_id for verification in verifications.values()]
    # An AssignmentAppend has no request of its own: the SyncGroups that wait for the append are
    # parked in the members. For an EmptyGroupAppend no request waits.
    for append in appends.values():
        if isinstance(append, OffsetsAppend | TransactionalOffsetsAppend):
            held.append(append.request_id)
        elif isinstance(append, StaticMemberAppend):
            held.append(append.parked.request_id)
    for group in shards.groups():
        for member in group.members.values():
            if member.awaiting_join is not None:
                held.append(member.awaiting_join.request_id)
            if member.awaiting_sync is not None:
                held.append(member.awaiting_sync)
    # An OffsetFetch of several groups is held once for each group, so its id may be added several
    # times here. The set that is returned has the id only once.
    for shard in shards.owned.values():
        # Each value is a pair: the offset for which the answer waits, and the answer.
        for _, write in shard.above_high_watermark.held.values():
            answered = write if isinstance(write, HeldHeartbeat) else write.fetch
            held.append(answered.request_id)
    return frozenset(held)


def _check_counts(group: Group) -> None:
    """The counts that a group keeps agree with its members."""
    awaiting = sum(member.awaiting_join is not None for member in group.members.values())
    _require(
        awaiting == group.members_awaiting_join,
        "members_awaiting_join",
        f"{group.group_id}: {awaiting} members are parked, {group.members_awaiting_join} counted",
    )
    counts: dict[str, int] = {}
    for member in group.members.values():
        for name in member.protocol_names():
            counts[name] = counts.get(name, 0) + 1
    _require(
        counts == group.supported_protocols,
        "supported_protocols",
        f"{group.group_id}: members support {counts}, counted {group.supported_protocols}",
    )


def _check_ids(group: Group) -> None:
    """Leader, static members, pending ids and timer keys agree with the members' ids."""
    # If there are members, one of them is the leader. Otherwise there is no leader.
    _require(
        group.leader_id in group.members if group.members else group.leader_id is None,
        "leader_is_member",
        f"{group.group_id}: leader {group.leader_id} of {list(group.members)}",
    )
    static = {
        member.group_instance_id: member_id
        for member_id, member in group.members.items()
        if member.group_instance_id is not None
    }
    _require(
        static == group.static_members,
        "static_members",
        f"{group.group_id}: {static} by member, {group.static_members} by instance",
    )
    both = [member_id for member_id in group.pending_members if member_id in group.members]
    _require(not both, "pending_is_no_member", f"{group.group_id}: {both} are members and pending")
    for member_id, member in group.members.items():
        _require(
            member.member_id == member_id
            and member.heartbeat_key == heartbeat_key(group, member_id),
            "member_under_its_id",
            f"{group.group_id}: {member.member_id} is stored as {member_id}",
        )


def _check_state(group: Group) -> None:
    """A group has members, and waits for requests, only in the states that allow it.

    - An Empty group has no members; a CompletingRebalance or Stable group has members.
    - Only a CompletingRebalance or Stable group waits for SyncGroups.
    - Only a PreparingRebalance group is in a join phase. If the phase waits for members to join, at
      least one member has not joined.
    """
    state = group.state
    if state is GroupState.EMPTY:
        _require(not group.members, "empty_group", f"{group.group_id}: {list(group.members)}")
    if state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        _require(
            bool(group.members) and group.protocol_name is not None,
            "generation_has_members",
            f"{group.group_id} is {state.value} with {len(group.members)} members and protocol "
            f"{group.protocol_name}",
        )
    else:
        _require(
            not group.pending_sync_members,
            "pending_sync_in_generation",
            f"{group.group_id} is {state.value}, waits for {list(group.pending_sync_members)}",
        )
    _require(
        group.delayed_join is None or state is GroupState.PREPARING_REBALANCE,
        "join_phase_in_preparing",
        f"{group.group_id} is {state.value} with {group.delayed_join}",
    )
    # With a DelayedJoin, the join phase ends as soon as all members have joined, and the group
    # leaves the state. With an InitialDelayedJoin, the phase may go on, because it lasts until its
    # delay is over.
    _require(
        not (isinstance(group.delayed_join, DelayedJoin) and group.has_all_members_joined),
        "join_phase_waits",
        f"{group.group_id}: all {len(group.members)} members have joined, and the join phase is "
        "not complete",
    )


def _check_parked(group: Group) -> None:
    """Requests are parked, and members are new, only in the states that allow it."""
    state = group.state
    for member in group.members.values():
        _require(
            member.awaiting_sync is None or state is GroupState.COMPLETING_REBALANCE,
            "parked_sync_in_completing",
            f"{group.group_id} is {state.value}, SyncGroup of {member.member_id} is parked",
        )
        # When a static member restarts in a Stable group, its JoinGroup is parked until its new
        # member id is stored. The group may become Dead meanwhile.
        _require(
            member.awaiting_join is None
            or state is GroupState.PREPARING_REBALANCE
            or (state in {GroupState.STABLE, GroupState.DEAD} and member.is_static),
            "parked_join_in_preparing",
            f"{group.group_id} is {state.value}, JoinGroup of {member.member_id} is parked",
        )
        _require(
            not member.is_new or state in {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
            "new_member_in_preparing",
            f"{group.group_id} is {state.value}, {member.member_id} is still new",
        )


def _check_pending_sync(group: Group) -> None:
    """A group waits for the SyncGroup of each member that has not sent it in this generation.

    - In CompletingRebalance, a member's SyncGroup is either parked or pending. Otherwise the sync
      timer would not remove a member that never sends it.
    - A Stable group does not wait for its leader, whose SyncGroup has brought the assignment. It
      may wait for other members, and for the former id of a static member that has restarted.

    In the other states a group waits for no SyncGroup, see `_check_state`.

    Source: Kafka GroupMetadata.addPendingSyncMember, removePendingSyncMember.
    """
    if group.state is GroupState.COMPLETING_REBALANCE:
        missing = [
            member.member_id for member in group.members.values() if member.awaiting_sync is None
        ]
        _require(
            group.pending_sync_members == dict.fromkeys(missing),
            "pending_sync_is_not_parked",
            f"{group.group_id}: the SyncGroups of {missing} are not parked, the group waits for "
            f"{list(group.pending_sync_members)}",
        )
    elif group.state is GroupState.STABLE:
        _require(
            group.leader_id not in group.pending_sync_members,
            "leader_has_synced",
            f"{group.group_id} is Stable, and waits for the SyncGroup of its leader "
            f"{group.leader_id}",
        )


def _check_held(shard: Shard, timers: Mapping[str, CoordinatorTimer]) -> None:
    """Every held answer has a timer, and the high watermark has not passed its records yet."""
    above = shard.above_high_watermark
    for key in above.held:
        _require(
            key in timers,
            "held_write_timer",
            f"partition {shard.partition}: nothing bounds the wait of {key}",
        )
    _require(
        not above.committed_keys(),
        "held_write_waits",
        f"partition {shard.partition}: {above.committed_keys()} wait for nothing",
    )


def _check_timers(group: Group, timers: Mapping[str, CoordinatorTimer]) -> None:
    """A timer ends every wait of a group, so that no wait is endless.

    A group may wait for a member's next request, for a client to use its pending member id, for
    the end of the join phase, or for SyncGroups.
    """
    # These members must send a request before their timer fires. The other members wait for an
    # answer themselves, and need no timer.
    waiting = [m.member_id for m in group.members.values() if not m.outlives_session_timeout]
    for member_id in (*waiting, *group.pending_members):
        _require(
            heartbeat_key(group, member_id) in timers,
            "session_timer",
            f"{group.group_id}: nothing will ever expire {member_id}",
        )
    # `delayed` builds the keys of the two timers below in the same way.
    _require(
        group.delayed_join is None or f"join-{group.group_id}" in timers,
        "join_timer",
        f"{group.group_id}: nothing bounds the join phase",
    )
    _require(
        not group.pending_sync_members or f"sync-{group.group_id}" in timers,
        "sync_timer",
        f"{group.group_id}: nothing bounds the wait for {list(group.pending_sync_members)}",
    )


def _require(holds: bool, name: str, evidence: str) -> None:
    """Raise InvariantViolation of the invariant `name` unless it holds."""
    if not holds:
        raise InvariantViolation(name, evidence)
