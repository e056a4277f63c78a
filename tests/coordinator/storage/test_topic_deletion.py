"""What the deletion of partitions does to groups (BEHAVIOUR 2.13, 0.1)."""

from protocol.ids import TopicPartition
from tests.support.harness.coordinator_harness import CoordinatorHarness

GONE = (TopicPartition("foo", 0), TopicPartition("foo", 1))


def delete(h: CoordinatorHarness, *partitions: TopicPartition) -> None:
    """Let partitions be deleted."""
    h.execute(h.coordinator.partitions_deleted(partitions or GONE, h.now_us))


def test_deletion_where_nothing_is_owned_changes_nothing() -> None:
    """Every broker hears of it."""
    h = CoordinatorHarness(owned=())
    delete(h)
    assert (h.log, h.trace) == ({}, [])
