"""Preloaded commit records: an experiment can begin with an offsets partition that is full already.

The records are written to the disk of each replica of the partition when its broker starts. This
happens only if the disk is empty, so that a restarted broker keeps its log.
"""

from cluster.broker.coordination.preload import group_ids, preload, preloaded_batches
from cluster.spec import PreloadSpec
from partition_log.batches import check_batch
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryStorage
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, offsets_partition
from protocol.partitioner import partition_for
from protocol.records.batch import decode_records
from protocol.records.offsets import OffsetCommitKey, decode_key, decode_offset_commit_value
from tests.support.harness.brokers import broker_cluster

SPEC = PreloadSpec(partition=1, commit_records=1_234, groups=3, records_per_batch=100)
"""A preload of offsets partition 1: twelve batches of 100 commits, and one of 34."""
BATCHES = 13
"""The number of batches of SPEC."""
PARTITIONS = 3
"""The number of partitions of __consumer_offsets."""


def test_batches_are_a_log_of_epoch_0_with_every_record() -> None:
    """The batches have valid checksums and consecutive offsets.

    The recovery of a log and the followers of a partition demand both.
    """
    batches = preloaded_batches(SPEC, PARTITIONS)
    assert all(check_batch(batch) is ErrorCode.NONE for batch in batches)
    # A log of the batches would refuse a gap.
    storage = MemoryStorage()
    for batch in batches:
        storage.log(offsets_partition(1)).append(batch)
    log = PartitionLog(offsets_partition(1), storage.log(offsets_partition(1)))
    assert (log.log_end_offset, log.latest_epoch) == (1_234, 0)


def test_records_are_commits_of_groups_of_that_partition() -> None:
    """By Kafka's hash, the offsets of all groups are in the partition of SPEC.

    The groups commit in turn.
    """
    assert all(partition_for(group, PARTITIONS) == 1 for group in group_ids(SPEC, PARTITIONS))
    last_offsets = {}  # group -> last offset, in the order of the groups' first commits
    for batch in preloaded_batches(SPEC, PARTITIONS):
        for record in decode_records(batch.records):
            assert record.key is not None
            assert record.value is not None
            key = decode_key(record.key)
            assert isinstance(key, OffsetCommitKey)
            # The offsets do not matter here. They are decoded to show that each value is valid.
            last_offsets[key.group] = decode_offset_commit_value(record.value).offset
    assert list(last_offsets) == group_ids(SPEC, PARTITIONS)


def test_each_deleted_offset_ends_with_a_tombstone() -> None:
    """With `deleted`, the preload commits offsets of some partitions, and then deletes all of them.

    `deleted` has the group, topic and partition of each offset. Here the five commits are for two
    partitions in turn. Then a tombstone, which is a record without a value, follows for each
    partition. So a load of these batches leaves no offset.
    """
    spec = PreloadSpec(partition=1, commit_records=5, deleted=(("g", "t", 0), ("g", "t", 1)))
    batches = preloaded_batches(spec, PARTITIONS)
    assert all(check_batch(batch) is ErrorCode.NONE for batch in batches)
    has_value: dict[bytes, bool] = {}  # key -> True if the last record with this key has a value
    for batch in batches:
        for record in decode_records(batch.records):
            assert record.key is not None
            has_value[record.key] = record.value is not None
    assert list(has_value.values()) == [False, False]  # two keys, which were both deleted
    # The last batch has the two tombstones, after the five commits.
    assert (batches[-1].base_offset, batches[-1].next_offset) == (5, 7)


def test_preload_writes_only_to_an_empty_disk_of_a_replica() -> None:
    """A disk that has a log already stays as it is. A broker without a replica gets no records."""
    cluster = broker_cluster(preload=(SPEC,))
    storage = MemoryStorage()
    preload(storage, BrokerId(0), cluster)
    assert len(storage.log(offsets_partition(1))) == BATCHES

    preload(storage, BrokerId(0), cluster)
    assert len(storage.log(offsets_partition(1))) == BATCHES

    # The cluster has the brokers 0, 1 and 2, so broker 9 has no replica.
    other_disk = MemoryStorage()
    preload(other_disk, BrokerId(9), cluster)
    assert len(other_disk.log(offsets_partition(1))) == 0
