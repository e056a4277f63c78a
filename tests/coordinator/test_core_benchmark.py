"""The benchmark of the coordinator's core does the work that the names of its figures promise.

`Core` is the coordinator that the benchmark drives, without a broker around it.
"""

from benchmarks.coordinator_core import (
    PARTITIONS,
    Core,
    batches_of,
    commit_records,
    syncing,
    weight,
)
from protocol.ids import TopicPartition


def test_group_of_the_benchmark_is_stable_with_all_members() -> None:
    """Each member has a session timer, with a key "heartbeat-..."."""
    core = Core()
    ids = core.stable_group(5)
    (group,) = core.coordinator.groups()
    assert (group.state.value, group.generation, group.members) == ("Stable", 1, tuple(ids))
    assert group.leader == ids[0]
    assert sum(key.startswith("heartbeat-") for key in core.timers) == 5


def test_each_member_is_answered_in_a_generation_of_the_benchmark() -> None:
    """`syncing(ids, 1)` makes a SyncGroup of each member, for generation 1."""
    core = Core()
    ids = core.stable_group(5)
    results = core.send(syncing(ids, 1))
    assert [len(result.replies) for result in results] == [1] * 5


def test_load_of_the_benchmark_finds_the_last_commit_of_each_partition() -> None:
    """The commits are of each group and partition in turn, and the committed offsets grow."""
    # 300 commits in turn of two groups, which have PARTITIONS (50) partitions each.
    records = commit_records(300, groups=2, partitions=PARTITIONS)
    core = Core(loads=batches_of(records))
    group = core.coordinator.group("group-1")
    assert group is not None
    assert len(group.offsets.committed()) == PARTITIONS
    last = group.offsets.get(TopicPartition("orders", 0))
    assert last is not None
    # Commits 1, 101 and 201 are of this group and partition, and 201 is the last.
    assert last.offset == 201


def test_weight_counts_only_memory_that_is_kept() -> None:
    """`weight` measures bytes that a call leaves in memory: here a million, and little more."""
    assert 1_000_000 <= weight(lambda: bytes(1_000_000)) < 1_100_000
