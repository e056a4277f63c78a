"""Unloading a partition: parked requests are answered, groups become Dead, timers end.

The state of a group is in one partition of the topic `__consumer_offsets`. The leader of this
partition is the group's coordinator. When a broker becomes leader, it loads the partition: it reads
the groups into memory. When it is no longer leader, it unloads the partition: it forgets the
groups. At this moment some requests are parked: the coordinator has not answered them yet. The
unload must answer them, because otherwise their clients would wait in vain.

In these tests `h` is a CoordinatorHarness: a coordinator with its log and timers, which has loaded
partition 0 in leader epoch 0. With `owned=()` the coordinator has loaded nothing.
`h.stable_group()` gives it a group with two members in generation 1. If a test sets
`h.holds_appends`, appends to the log wait until the test calls `h.complete`.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 5.5. Ids such as MM-16 and FO-02 are cases that this
page lists.
"""

import pytest

from coordinator.coordinator import LoadIgnored
from coordinator.states import GroupState
from protocol.causes import IgnoredCause
from protocol.config import Guards
from protocol.effects import AppendCompleted
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import AppendId
from protocol.trace import TraceKind
from tests.support.builders.requests import join_group, offset_commit, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness, commit_errors


def test_unload_makes_groups_dead_and_forgets_them() -> None:
    """After the unload the broker answers NOT_COORDINATOR.

    MM-16: unload with the epoch of the load
    """
    h = CoordinatorHarness()
    ids = h.stable_group()
    group = h.group()
    assert h.unload(epoch=0) is None
    assert group.state is GroupState.DEAD
    assert h.coordinator.groups() == ()
    assert h.timer_keys() == []
    assert not h.coordinator.is_owned(0)
    assert h.beat(ids[0], generation_id=1) is ErrorCode.NOT_COORDINATOR
    assert h.events(TraceKind.GROUP_STATE)[-1].cause == "unloaded"


def test_unload_in_preparing_answers_parked_joins_with_their_member_ids() -> None:
    """Each parked JoinGroup is answered with NOT_COORDINATOR and its own member id (FO-02)."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    newcomer = h.new_member_id()
    joins = {member_id: h.submit(join_group(member_id)) for member_id in (ids[0], newcomer)}
    h.unload()
    for member_id, request_id in joins.items():
        response = h.join_response(request_id)
        assert response.error_code is ErrorCode.NOT_COORDINATOR
        assert response.member_id == member_id
    assert h.timer_keys() == []


def test_unload_in_completing_answers_parked_syncs() -> None:
    """Each parked SyncGroup is answered with NOT_COORDINATOR (FO-03)."""
    h = CoordinatorHarness()
    ids = [h.new_member_id() for _ in range(2)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)
    # The follower's SyncGroup waits for the leader's SyncGroup.
    sync = h.submit(sync_group(ids[1], generation_id=1))
    h.unload()
    assert h.sync_response(sync).error_code is ErrorCode.NOT_COORDINATOR
    assert h.timer_keys() == []


def test_unload_forgets_pending_ids_with_their_timers() -> None:
    """A member id is pending from its assignment until its client joins with this id.

    If the client does not come, a timer removes the id. The unload ends this timer.
    """
    h = CoordinatorHarness()
    h.new_member_id()
    h.unload()
    assert h.timer_keys() == []


def test_unload_leaves_other_partitions_unchanged() -> None:
    """Each partition has its own groups and timers."""
    h = CoordinatorHarness(num_partitions=2, owned=(0, 1))
    # The partition of a group follows from the hash of its id. Among eight ids there is at least
    # one of each partition.
    ids_by_partition = {h.coordinator.partition_of(f"g{i}"): f"g{i}" for i in range(8)}
    unloaded, kept = ids_by_partition[0], ids_by_partition[1]
    h.stable_group(size=1, group_id=unloaded)
    (member_of_kept,) = h.stable_group(size=1, group_id=kept)
    h.unload(0)
    assert [summary.group_id for summary in h.coordinator.groups()] == [kept]
    assert h.timer_keys() == [f"heartbeat-{kept}-{member_of_kept}"]


def test_unload_of_an_older_epoch_is_ignored() -> None:
    """An unload of epoch 1 may arrive late, after the load of epoch 2. The group still works.

    MM-17: unload of an older epoch is ignored
    """
    h = CoordinatorHarness(owned=())
    h.load(epoch=2)
    ids = h.stable_group(size=1)
    assert h.unload(epoch=1) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=2)
    assert h.beat(ids[0], generation_id=1) is ErrorCode.NONE


def test_unload_of_an_older_epoch_without_the_guard_is_carried_out() -> None:
    """An experiment can switch off the check of epochs, which is called a guard.

    Then a late unload stops a coordinator that has just been elected.
    """
    h = CoordinatorHarness(owned=(), guards=Guards(leader_epoch_guard=False))
    h.load(epoch=2)
    assert h.unload(epoch=1) is None
    assert not h.coordinator.is_owned(0)


def test_unload_without_epoch_removes_the_groups_and_keeps_the_epoch() -> None:
    """A broker whose replica is deleted unloads without an epoch, which is never ignored.

    But the coordinator still remembers the newest epoch that it has seen.

    MM-18: unload without an epoch
    """
    h = CoordinatorHarness(owned=())
    h.load(epoch=2)
    assert h.unload(epoch=None) is None
    assert h.load(epoch=1) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=2)
    assert h.load(epoch=3) is None


def test_unload_of_a_partition_that_is_not_loaded_stores_its_epoch() -> None:
    """The unload of epoch 4 arrives before the load of epoch 3. Then the load must be ignored."""
    h = CoordinatorHarness(owned=())
    assert h.unload(epoch=4) is None
    assert h.load(epoch=3) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=4)


def test_unload_of_a_loading_partition_cancels_the_load() -> None:
    """After the unload the partition is neither loading nor owned, as in Kafka."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us)
    h.unload(epoch=2)
    assert not h.coordinator.is_loading(0)
    assert not h.coordinator.is_owned(0)


def test_commit_acknowledged_after_the_unload_is_still_answered() -> None:
    """The record is in the log, so the client gets a success, and the trace has the commit."""
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(offset_commit({("foo", 0): 5}))
    h.unload()
    assert h.response(request_id) is None
    h.complete()
    assert commit_errors(h.response(request_id)) == [ErrorCode.NONE]
    assert len(h.events(TraceKind.COMMIT_STORED)) == 1
    assert h.coordinator.groups() == ()


def test_commit_whose_append_fails_with_the_leadership_is_answered_not_coordinator() -> None:
    """The broker loses the leadership while the append is in flight, so the append fails."""
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(offset_commit({("foo", 0): 5}))
    h.unload()
    h.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert commit_errors(h.response(request_id)) == [ErrorCode.NOT_COORDINATOR]


def test_assignment_stored_after_the_unload_is_ignored() -> None:
    """The append of the assignment ends after the unload. The SyncGroup has its answer already."""
    h = CoordinatorHarness()
    member_id = h.new_member_id()
    h.submit(join_group(member_id))
    h.advance(0)
    h.holds_appends = True
    sync = h.submit(sync_group(member_id, generation_id=1, assignments={}))
    h.unload()
    assert h.sync_response(sync).error_code is ErrorCode.NOT_COORDINATOR
    h.complete()
    assert h.coordinator.groups() == ()


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_static_replacement_that_ends_after_the_unload_is_answered(error: ErrorCode) -> None:
    """A static member that restarts takes over its own place in a Stable group.

    The member's JoinGroup waits until the replacement is in the log. The unload of a Stable group
    answers no JoinGroup. So this JoinGroup is answered when the append ends.
    """
    h = CoordinatorHarness()
    h.submit(join_group(instance="i"))
    h.advance(0)
    h.submit(sync_group(h.summary().members[0], generation_id=1, assignments={}))

    h.holds_appends = True
    join = h.submit(join_group(instance="i"))
    h.unload()
    assert h.response(join) is None
    h.complete(error)
    assert h.join_response(join).error_code is ErrorCode.NOT_COORDINATOR
    assert h.timer_keys() == []


def test_completion_of_an_unknown_append_raises() -> None:
    """Only a bug of the broker completes an append that is not in flight."""
    h = CoordinatorHarness()
    with pytest.raises(SimulationError, match="not in flight"):
        h.coordinator.append_completed(AppendCompleted(append_id=AppendId(7)), h.now_us)


def test_append_of_before_the_unload_does_not_change_the_group_that_is_loaded_again() -> None:
    """The partition moves away and back while a commit is in flight.

    1. A member commits an offset. The append is in flight.
    2. The partition is unloaded, and loaded again. The load does not read the record.
    3. The append succeeds. The client gets the success, but the group that was loaded does not get
       the offset.
    """
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.holds_appends = True
    request_id = h.submit(offset_commit({("foo", 0): 5}, ids[0], generation_id=1))

    h.unload(epoch=1)
    h.load(epoch=2)
    h.complete()

    assert commit_errors(h.response(request_id)) == [ErrorCode.NONE]
    assert h.offset("foo", 0) == -1
    # The load has read generation 1, so the member is still in the group.
    assert h.beat(ids[0], generation_id=1) is ErrorCode.NONE
