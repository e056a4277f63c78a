"""The numbers of groups, offsets and timers that a coordinator reports to its gauges.

`harness` is a coordinator with a log; `sizes()` returns the numbers. MM-66 and JC-38 are cases of
Kafka's tests (docs/kafka/BEHAVIOUR.md 10).
"""

from coordinator.states import GroupState
from tests.support.builders.requests import join_group, leave_group, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness


def states(harness: CoordinatorHarness) -> dict[GroupState, int]:
    return harness.coordinator.sizes().groups


def test_groups_are_counted_by_state() -> None:
    """Four groups begin in Empty. Then one becomes Stable, and another goes through a rebalance.

    MM-66: gauges of groups by state
    JC-38: gauges of groups by state, computed anew
    """
    harness = CoordinatorHarness()
    for name in ("a", "b", "c", "d"):
        harness.commit(offset_commit({("foo", 0): 1}, group_id=name))
    assert states(harness) == {GroupState.EMPTY: 4}

    ids = harness.stable_group(size=2, group_id="a")  # two members join, and get assignments
    assert states(harness) == {GroupState.EMPTY: 3, GroupState.STABLE: 1}

    harness.submit(join_group(harness.new_member_id(group_id="b"), group_id="b"))
    assert states(harness)[GroupState.PREPARING_REBALANCE] == 1
    # The initial rebalance delay is 0, so the join phase ends at once.
    harness.advance(10)
    assert states(harness)[GroupState.COMPLETING_REBALANCE] == 1
    assert GroupState.PREPARING_REBALANCE not in states(harness)

    harness.leave(leave_group(*ids, group_id="a"))
    # The broker no longer leads the offsets partition, so the coordinator has no groups.
    harness.unload()
    assert states(harness) == {}


def test_offsets_and_delayed_operations_are_counted() -> None:
    """`heartbeats` counts the timers of members and pending ids, `rebalances` the join phases.

    A pending id was assigned to a client that has not joined with it yet.
    """
    harness = CoordinatorHarness()
    sizes = harness.coordinator.sizes()
    assert (sizes.offsets, sizes.heartbeats, sizes.rebalances) == (0, 0, 0)

    harness.stable_group(size=3, group_id="a")
    harness.commit(offset_commit({("foo", 0): 1, ("foo", 1): 1}, group_id="b"))
    harness.new_member_id(group_id="c")
    sizes = harness.coordinator.sizes()
    # Four timers: three members of a, and the pending id of c.
    assert (sizes.offsets, sizes.heartbeats, sizes.rebalances) == (2, 4, 0)

    harness.submit(join_group(harness.new_member_id(group_id="d"), group_id="d"))
    assert harness.coordinator.sizes().rebalances == 1
