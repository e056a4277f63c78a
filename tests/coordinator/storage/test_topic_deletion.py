"""A coordinator without groups learns that a topic is deleted.

The file scenarios/topic_deletion.txt shows what a coordinator with groups does: it removes the
committed offsets of the topic.
"""

from protocol.ids import TopicPartition
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_deletion_on_a_broker_without_groups_changes_nothing() -> None:
    """Every broker learns of a deletion. A broker without groups has nothing to do."""
    h = CoordinatorHarness(owned=())
    deleted = (TopicPartition("foo", 0), TopicPartition("foo", 1))
    h.execute(h.coordinator.partitions_deleted(deleted, h.now_us))
    assert h.log == {}
    assert h.trace == []
