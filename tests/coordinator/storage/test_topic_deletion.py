"""Deletion of a topic's partitions, reported to a coordinator without groups.

The same on coordinators with groups is in scenarios/topic_deletion.txt.
"""

from protocol.ids import TopicPartition
from tests.support.harness.coordinator_harness import CoordinatorHarness

GONE = (TopicPartition("foo", 0), TopicPartition("foo", 1))


def delete(h: CoordinatorHarness, *partitions: TopicPartition) -> None:
    """Report deleted partitions (default: GONE) to the coordinator."""
    h.execute(h.coordinator.partitions_deleted(partitions or GONE, h.now_us))


def test_deletion_on_a_broker_without_groups_changes_nothing() -> None:
    """Every broker is told of a deletion, also one that has no groups with offsets to remove."""
    h = CoordinatorHarness(owned=())
    delete(h)
    assert (h.log, h.trace) == ({}, [])
