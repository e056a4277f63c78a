"""Preloaded commit records: they are on each replica's disk before a run.

A run writes them only to an empty disk, so that a restarted broker keeps its log.
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
PARTITIONS = 3
"""The number of partitions of __consumer_offsets."""


def test_batches_are_a_log_of_epoch_0_with_every_record() -> None:
    """The batches have no gaps and valid CRCs (checksums). Recovery and followers demand both."""
    batches = preloaded_batches(SPEC, PARTITIONS)
    assert all(check_batch(batch) is ErrorCode.NONE for batch in batches)
    storage = MemoryStorage()
    for batch in batches:
        storage.log(offsets_partition(1)).append(batch)
    log = PartitionLog(offsets_partition(1), storage.log(offsets_partition(1)))
    assert (log.log_end_offset, log.latest_epoch) == (1_234, 0)


def test_records_are_commits_of_groups_of_that_partition() -> None:
    """A group's partition follows from its name. The groups commit in the order of `group_ids`."""
    assert all(partition_for(group, PARTITIONS) == 1 for group in group_ids(SPEC, PARTITIONS))
    last_offsets = {}  # group -> last offset, in the order of the groups' first commits
    for batch in preloaded_batches(SPEC, PARTITIONS):
        for record in decode_records(batch.records):
            assert record.key is not None
            assert record.value is not None
            key = decode_key(record.key)
            assert isinstance(key, OffsetCommitKey)
            last_offsets[key.group] = decode_offset_commit_value(record.value).offset
    assert list(last_offsets) == group_ids(SPEC, PARTITIONS)


def test_deleted_offsets_end_with_a_tombstone_each() -> None:
    """A load of these batches must leave no offset.

    The five commits take the two keys of `deleted` in turn. A tombstone is a record without a
    value, which deletes its key.
    """
    spec = PreloadSpec(partition=1, commit_records=5, deleted=(("g", "t", 0), ("g", "t", 1)))
    batches = preloaded_batches(spec, PARTITIONS)
    assert all(check_batch(batch) is ErrorCode.NONE for batch in batches)
    # By key: True if the last record with the key has a value.
    has_value: dict[bytes, bool] = {}
    for batch in batches:
        for record in decode_records(batch.records):
            assert record.key is not None
            has_value[record.key] = record.value is not None
    assert list(has_value.values()) == [False, False]
    # The last batch has the two tombstones, after the five commits.
    assert (batches[-1].base_offset, batches[-1].next_offset) == (5, 7)


def test_preload_writes_only_to_an_empty_disk_of_a_replica() -> None:
    """A disk with a log stays as it is. A broker without a replica of the partition gets no log."""
    cluster = broker_cluster(preload=(SPEC,))
    storage = MemoryStorage()
    preload(storage, BrokerId(0), cluster)
    length = len(storage.log(offsets_partition(1)))
    assert length == 13  # batches: 1,234 records, 100 in each

    preload(storage, BrokerId(0), cluster)
    assert len(storage.log(offsets_partition(1))) == length

    # The cluster has the brokers 0, 1 and 2, so broker 9 has no replica.
    other_disk = MemoryStorage()
    preload(other_disk, BrokerId(9), cluster)
    assert len(other_disk.log(offsets_partition(1))) == 0
