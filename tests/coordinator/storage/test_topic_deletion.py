"""What the deletion of partitions does to groups (BEHAVIOUR 2.13, 0.1)."""

from coordinator.states import GroupState
from protocol.ids import TopicPartition
from protocol.records.batch import decode_records
from protocol.trace import TraceKind
from tests.support.builders.requests import join_group, leave_group, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness

GONE = (TopicPartition("foo", 0), TopicPartition("foo", 1))


def delete(h: CoordinatorHarness, *partitions: TopicPartition) -> None:
    """Let partitions be deleted."""
    h.execute(h.coordinator.partitions_deleted(partitions or GONE, h.now_us))


def groups(h: CoordinatorHarness) -> list[str]:
    return [summary.group_id for summary in h.coordinator.groups()]


def test_offsets_of_deleted_partitions_go_from_every_group_in_any_state() -> None:
    """Whoever consumes them, and with a tombstone each; other offsets stay."""
    h = CoordinatorHarness()
    (stable,) = h.stable_group(1, group_id="stable")
    h.commit(offset_commit({("foo", 0): 1, ("bar", 0): 2}, stable, 1, group_id="stable"))
    h.commit(offset_commit({("foo", 0): 3, ("foo", 1): 4, ("bar", 0): 5}, group_id="simple"))
    (joined,) = h.stable_group(1, group_id="preparing")
    h.commit(offset_commit({("foo", 1): 6, ("bar", 0): 7}, joined, 1, group_id="preparing"))
    h.submit(join_group(group_id="preparing", instance="i"))
    assert h.state("preparing") is GroupState.PREPARING_REBALANCE
    before = len(h.log[0])
    delete(h)
    for group_id, kept in (("stable", 2), ("simple", 5), ("preparing", 7)):
        assert [h.offset("foo", index, group_id=group_id) for index in (0, 1)] == [-1, -1]
        assert h.offset("bar", 0, group_id=group_id) == kept
    assert h.state("stable") is GroupState.STABLE
    written = [decode_records(batch.records) for batch in h.log[0][before:]]
    assert [len(records) for records in written] == [1, 2, 1]
    assert all(record.value is None for records in written for record in records)
    removed = [(e.group, e.partition, e.cause) for e in h.events(TraceKind.OFFSET_REMOVED)]
    assert removed[0] == ("stable", "foo-0", "its topic was deleted")
    assert len(removed) == 4
    after = h.failover()
    assert after.offset("foo", 0, group_id="simple") == -1
    assert after.offset("bar", 0, group_id="simple") == 5


def test_deletion_of_any_topic_reaps_empty_groups_without_offsets() -> None:
    """BEHAVIOUR 0.1, recording `topic-deleted-reaps`: the cleanup looks at them, too."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    h.commit(offset_commit({("bar", 0): 5}, group_id="keeps"))
    delete(h, TopicPartition("nobody-reads-it", 0))
    assert groups(h) == ["keeps"]
    assert groups(h.failover()) == ["keeps"]


def test_group_whose_last_offset_goes_with_the_topic_is_gone() -> None:
    """A simple group without a tombstone of its own, a former consumer group with one."""
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}, group_id="simple"))
    (member_id,) = h.stable_group(1)
    h.commit(offset_commit({("foo", 1): 5}, member_id, 1))
    h.leave(leave_group(member_id))
    before = len(h.log[0])
    delete(h)
    assert groups(h) == []
    assert [batch.record_count for batch in h.log[0][before:]] == [1, 2]
    assert groups(h.failover()) == []


def test_deletion_where_nothing_is_owned_changes_nothing() -> None:
    """Every broker hears of it."""
    h = CoordinatorHarness(owned=())
    delete(h)
    assert (h.log, h.trace) == ({}, [])
