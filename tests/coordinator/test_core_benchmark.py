"""The benchmark `coordinator_core` really does the work whose time it measures.

The benchmark measures a `Core`, which is a coordinator without a broker around it. `core.send(...)`
gives requests to the coordinator, and `core.stable_group(5)` makes a group of five members.
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
    """After `stable_group` the members have an assignment. Each member has a session timer."""
    core = Core()
    ids = core.stable_group(5)
    (group,) = core.coordinator.groups()
    assert group.state.value == "Stable"
    assert group.generation == 1
    assert group.members == tuple(ids)
    assert group.leader == ids[0]
    assert sum(key.startswith("heartbeat-") for key in core.timers) == 5


def test_each_member_is_answered_in_a_generation_of_the_benchmark() -> None:
    """`syncing(ids, 1)` returns a SyncGroup of each member, for generation 1.

    The coordinator answers each SyncGroup with one reply.
    """
    core = Core()
    ids = core.stable_group(5)
    results = core.send(syncing(ids, 1))
    assert [len(result.replies) for result in results] == [1] * 5


def test_load_of_the_benchmark_finds_the_last_commit_of_each_partition() -> None:
    """The benchmark loads a log of commits. The last commit of each partition must count.

    Here the log has 300 commits of two groups, and each group has 50 partitions (PARTITIONS). The
    first 100 commits are one commit for each partition of both groups. The next 100 commits are a
    second commit for each of these partitions, and the last 100 a third. The committed offset is
    the number of the commit in the log.
    """
    records = commit_records(300, groups=2, partitions=PARTITIONS)
    core = Core(loads=batches_of(records))
    group = core.coordinator.group("group-1")
    assert group is not None
    assert len(group.offsets.committed()) == PARTITIONS
    last_commit = group.offsets.get(TopicPartition("orders", 0))
    assert last_commit is not None
    # The commits 1, 101 and 201 are of this group and partition.
    assert last_commit.offset == 201


def test_weight_counts_only_memory_that_is_kept() -> None:
    """`weight` returns the number of bytes that a call leaves in memory, here a million."""
    assert 1_000_000 <= weight(lambda: bytes(1_000_000)) < 1_100_000
