"""The invariant checks of the group coordinator find damage in its state.

The checks look for states that no correct coordinator can be in. They raise an InvariantViolation
with the name of the invariant that is broken. A test takes a sound state, damages this state, and
expects the violation. Each function `_stray_...` or `_no_...` does one kind of damage to a group:
it adds something that does not belong to the group, or removes something.

`h` is a CoordinatorHarness: a coordinator with its log and timers. For each partition that it owns,
the coordinator has a shard with the groups of the partition. A request is parked while its answer
waits for other members.
"""

from collections.abc import Callable

import pytest

from coordinator.group import DelayedJoin, Group
from coordinator.invariants import check_group, check_shards
from coordinator.shard import Shard, Shards
from coordinator.states import GroupState
from coordinator.turn import GroupTimer, SessionTimer
from protocol.causes import GroupStateCause
from protocol.errors import InvariantViolation
from protocol.ids import RequestId, TopicPartition
from protocol.records.offsets import OffsetCommitValue
from tests.support.builders.requests import join_group, offset_commit, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness

VALUE = OffsetCommitValue(offset=3, commit_timestamp_ms=0)
"""A committed offset. Its numbers do not matter."""


def stable_group() -> Group:
    """Return a Stable group of two members."""
    h = CoordinatorHarness()
    h.stable_group()
    return h.group()


def _stray_count(group: Group) -> None:
    group.members_awaiting_join += 1


def _stray_protocol(group: Group) -> None:
    group.supported_protocols["sticky"] = 1


def _stray_leader(group: Group) -> None:
    group.leader_id = "unknown"


def _stray_instance(group: Group) -> None:
    group.static_members["i"] = "unknown"


def _stray_pending(group: Group) -> None:
    group.pending_members[next(iter(group.members))] = None


def _stray_id(group: Group) -> None:
    # This is the key of the member's session timer, which must contain the member's id.
    next(iter(group.members.values())).heartbeat_key = "other"


def _stray_sync(group: Group) -> None:
    next(iter(group.members.values())).awaiting_sync = RequestId(1)


def _stray_pending_sync(group: Group) -> None:
    assert group.leader_id is not None
    group.pending_sync_members[group.leader_id] = None


def _stray_join_phase(group: Group) -> None:
    group.delayed_join = DelayedJoin()


def _stray_new_member(group: Group) -> None:
    next(iter(group.members.values())).is_new = True


def _no_protocol(group: Group) -> None:
    group.protocol_name = None


@pytest.mark.parametrize(
    ("damage", "broken_invariant"),
    [
        (_stray_count, "members_awaiting_join"),
        (_stray_protocol, "supported_protocols"),
        (_stray_leader, "leader_is_member"),
        (_stray_instance, "static_members"),
        (_stray_pending, "pending_is_no_member"),
        (_stray_id, "member_under_its_id"),
        (_stray_sync, "parked_sync_in_completing"),
        (_stray_pending_sync, "leader_has_synced"),
        (_stray_join_phase, "join_phase_in_preparing"),
        (_stray_new_member, "new_member_in_preparing"),
        (_no_protocol, "generation_has_members"),
    ],
)
def test_check_group_names_the_invariant_that_the_damage_breaks(
    damage: Callable[[Group], None], broken_invariant: str
) -> None:
    """A check that cannot fail proves nothing, so each check must find its damage."""
    group = stable_group()
    check_group(group)
    damage(group)
    with pytest.raises(InvariantViolation) as raised:
        check_group(group)
    assert raised.value.name == broken_invariant


def test_check_group_finds_a_join_phase_that_waits_for_no_member() -> None:
    """A join phase must end when all members have joined.

    Here the phase waits for the second member. The test removes this member from the group without
    a request. So the coordinator does not notice that the phase has nothing to wait for any more.
    """
    h = CoordinatorHarness()
    first, second = h.stable_group()
    h.submit(join_group(first))  # the leader's JoinGroup begins a rebalance
    group = h.group()
    check_group(group)

    group.remove(second)

    with pytest.raises(InvariantViolation, match="all 1 members have joined"):
        check_group(group)


def test_check_group_finds_a_member_whose_sync_group_is_neither_parked_nor_pending() -> None:
    """In CompletingRebalance, each member is pending until its SyncGroup is parked.

    First no member has sent SyncGroup, then one member has. The sync timer removes the members that
    are pending when it fires. So a silent member that is not pending would stay in the group.
    """
    h = CoordinatorHarness()
    ids = h.stable_group(size=3)
    for member_id in ids:
        h.submit(join_group(member_id))  # the leader's JoinGroup begins a rebalance
    group = h.group()
    assert group.state is GroupState.COMPLETING_REBALANCE
    check_group(group)
    h.submit(sync_group(ids[1], group.generation_id))  # is parked: the leader has sent nothing yet
    check_group(group)
    assert list(group.pending_sync_members) == [ids[0], ids[2]]

    group.pending_sync_members[ids[1]] = None
    with pytest.raises(InvariantViolation, match="pending_sync_is_not_parked"):
        check_group(group)

    del group.pending_sync_members[ids[1]], group.pending_sync_members[ids[2]]
    with pytest.raises(InvariantViolation, match="pending_sync_is_not_parked"):
        check_group(group)


def shards_of(group: Group) -> tuple[Shards, dict[str, GroupTimer]]:
    """Return shards that have only this group, and the session timers of its members."""
    shards = Shards(1)
    shards.owned[0] = Shard(0)
    shards.owned[0].groups[group.group_id] = group
    timers: dict[str, GroupTimer] = {
        member.heartbeat_key: SessionTimer(group, member.member_id)
        for member in group.members.values()
    }
    return shards, timers


def test_check_shards_finds_a_member_without_session_timer() -> None:
    """Without the timer a crashed member would stay in the group for ever."""
    shards, timers = shards_of(stable_group())
    check_shards(shards, timers)
    timers.popitem()
    with pytest.raises(InvariantViolation, match="nothing will ever expire"):
        check_shards(shards, timers)


def test_check_appends_finds_a_pending_commit_without_append() -> None:
    """A commit is pending while its append is in flight, and ends with the append.

    Without an append the commit would be pending for ever, and a stable OffsetFetch would always
    get an error.
    """
    h = CoordinatorHarness()
    h.stable_group()
    h.holds_appends = True
    h.group().offsets.prepare(TopicPartition("orders", 0), VALUE)  # makes a commit pending
    with pytest.raises(InvariantViolation, match="a commit of orders-0 waits"):
        h.coordinator.check_invariants()


def test_check_appends_finds_a_transaction_without_append() -> None:
    """The record of a transaction's pending offset is in the log, or its append is in flight.

    Here the pending offset has no record and no append.
    """
    h = CoordinatorHarness()
    h.stable_group()
    group = h.group()
    # The shard must list the group under each producer with a pending offset in the group.
    # Otherwise another check would fail first.
    h.coordinator._shards.owned[group.partition].add_producer(7, group)
    group.offsets.prepare_transactional(7, TopicPartition("orders", 0), VALUE)
    with pytest.raises(InvariantViolation, match="by producer 7 waits"):
        h.coordinator.check_invariants()


def test_check_shards_finds_a_timer_of_an_unknown_group() -> None:
    """A timer of an unknown group is left over if an unload does not cancel the timer."""
    shards, timers = shards_of(stable_group())
    timers["heartbeat-x"] = SessionTimer(stable_group(), "x")
    with pytest.raises(InvariantViolation, match="which is not here"):
        check_shards(shards, timers)


def test_check_shards_finds_dead_and_misplaced_groups() -> None:
    """A group must be stored under its own id, and a Dead group must not be in a shard."""
    group = stable_group()
    shards, timers = shards_of(group)
    shards.owned[0].groups["other"] = shards.owned[0].groups.pop("group")
    with pytest.raises(InvariantViolation, match="group_in_its_shard"):
        check_shards(shards, timers)

    shards.owned[0].groups = {"group": group}
    group.transition_to(GroupState.DEAD, now_us=0, cause=GroupStateCause.UNLOADED, trace=[])
    with pytest.raises(InvariantViolation, match="is Dead"):
        check_shards(shards, timers)


def test_coordinator_lists_the_requests_that_it_holds() -> None:
    """`waiting` returns the ids of the requests that have no answer yet.

    Such requests are parked JoinGroups and SyncGroups, and commits whose append is in flight.
    """
    h = CoordinatorHarness()
    ids = h.stable_group()
    assert h.coordinator.waiting() == frozenset()
    h.holds_appends = True
    commit = h.submit(offset_commit({("orders", 0): 5}, ids[0], generation_id=1))
    assert h.coordinator.waiting() == {commit}

    h.holds_appends = False
    h.complete()
    rejoin = h.submit(join_group(ids[0]))  # waits for the other member
    assert h.coordinator.waiting() == {rejoin}

    h.submit(join_group(ids[1]))
    sync = h.submit(sync_group(ids[1], generation_id=2))  # waits for the leader's SyncGroup
    assert h.coordinator.waiting() == {sync}
