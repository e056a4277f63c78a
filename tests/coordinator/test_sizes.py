"""The numbers of groups, offsets and timers that a coordinator shows in its metrics.

`harness` is a coordinator with a log, and `harness.coordinator.sizes()` returns its numbers. A line
such as "MM-66: ..." says which case of Kafka's tests a test repeats (docs/kafka/BEHAVIOUR.md 10).
"""

from coordinator.states import GroupState
from tests.support.builders.requests import join_group, leave_group, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness


def groups_by_state(harness: CoordinatorHarness) -> dict[GroupState, int]:
    """Return the number of groups in each state. A state without groups is left out."""
    return harness.coordinator.sizes().groups


def test_groups_are_counted_by_state() -> None:
    """Four groups are Empty at first. Group "a" becomes Stable, and group "b" rebalances.

    MM-66: gauges of groups by state
    JC-38: gauges of groups by state, computed anew
    """
    harness = CoordinatorHarness()
    for name in ("a", "b", "c", "d"):
        harness.commit(offset_commit({("foo", 0): 1}, group_id=name))
    assert groups_by_state(harness) == {GroupState.EMPTY: 4}

    ids = harness.stable_group(size=2, group_id="a")  # two members join, and get assignments
    assert groups_by_state(harness) == {GroupState.EMPTY: 3, GroupState.STABLE: 1}

    harness.submit(join_group(harness.new_member_id(group_id="b"), group_id="b"))
    assert groups_by_state(harness)[GroupState.PREPARING_REBALANCE] == 1
    harness.advance(10)  # the end of the join phase, because the initial rebalance delay is 0
    assert groups_by_state(harness)[GroupState.COMPLETING_REBALANCE] == 1
    assert GroupState.PREPARING_REBALANCE not in groups_by_state(harness)

    harness.leave(leave_group(*ids, group_id="a"))
    harness.unload()  # the broker no longer leads the offsets partition, so it has no groups
    assert groups_by_state(harness) == {}


def test_offsets_and_delayed_operations_are_counted() -> None:
    """Kafka counts the operations that wait until a timer fires.

    - `heartbeats` counts the timers of sessions. Each member has a session timer. A pending id has
      a session timer, too. An id is pending from its assignment until the client joins with it.
    - `rebalances` counts the groups in their join phase.
    """
    harness = CoordinatorHarness()
    sizes = harness.coordinator.sizes()
    assert sizes.offsets == 0
    assert sizes.heartbeats == 0
    assert sizes.rebalances == 0

    harness.stable_group(size=3, group_id="a")
    harness.commit(offset_commit({("foo", 0): 1, ("foo", 1): 1}, group_id="b"))
    harness.new_member_id(group_id="c")
    sizes = harness.coordinator.sizes()
    assert sizes.offsets == 2
    assert sizes.heartbeats == 3 + 1  # the members of a, and the pending id of c
    assert sizes.rebalances == 0

    harness.submit(join_group(harness.new_member_id(group_id="d"), group_id="d"))
    assert harness.coordinator.sizes().rebalances == 1
