"""Deletion of a topic's partitions, reported to a coordinator without groups.

Deletions on coordinators with groups are in scenarios/topic_deletion.txt.
"""

from protocol.ids import TopicPartition
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_deletion_on_a_broker_without_groups_changes_nothing() -> None:
    """Every broker is told of a deletion, also one that has no groups with offsets to remove."""
    h = CoordinatorHarness(owned=())
    deleted = (TopicPartition("foo", 0), TopicPartition("foo", 1))
    h.execute(h.coordinator.partitions_deleted(deleted, h.now_us))
    assert (h.log, h.trace) == ({}, [])
