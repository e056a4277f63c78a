"""Preloaded records: committed offsets that are in `__consumer_offsets` before the run.

Because of these records a coordinator has something to load, as on a cluster that has been in use
for a long time. When a broker starts for the first time, it writes the records to its disk. So all
replicas of a partition have the same records. The records have leader epoch 0, the epoch of the
first leader.

An experiment may have a PreloadSpec for each partition of `__consumer_offsets`, with the number of
records and of groups. It can also ask for special records:

- `unreadable`: the last record is one that no coordinator can read.
- `deleted`: a list of (group, topic, partition). The records commit offsets only for the entries
  of this list, and then tombstones (records that delete a key) delete the offsets.
"""

from functools import lru_cache
from itertools import count

from cluster.controller.topic_creation import replica_assignment
from cluster.spec import ClusterSpec, PreloadSpec
from cluster.storage.compression import CODECS
from partition_log.batches import build_batch, place_batch
from partition_log.storage import Storage
from protocol.ids import CONSUMER_OFFSETS, BrokerId, TopicPartition, offsets_partition
from protocol.partitioner import partition_for
from protocol.records.batch import Record, RecordBatch
from protocol.records.offsets import (
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_offset_commit_key,
    encode_offset_commit_value,
)

TOPIC = "preloaded"
"""The topic for whose partitions the preloaded groups commit."""
PARTITIONS_PER_GROUP = 50
"""Number of partitions for which each group commits.

With 2 groups there are 100 different keys. If there are more records than keys, later records
overwrite earlier records, as in any old log."""

UNREADABLE = Record(encode_group_metadata_key("unreadable"), b"\x00\x63", 0)
"""A group's record in version 99 (0x0063), which no coordinator can read."""


def preload(storage: Storage, broker_id: BrokerId, cluster: ClusterSpec) -> None:
    """Write the preloaded batches of the partitions that `broker_id` replicates.

    A log that is not empty stays unchanged.
    """
    compression = cluster.broker_config.offsets_topic_compression_codec
    for spec in cluster.preload:
        for topic in cluster.topics:
            if topic.name == CONSUMER_OFFSETS:
                log = storage.log(offsets_partition(spec.partition))
                replicas = replica_assignment(topic, spec.partition, cluster.brokers)
                if broker_id in replicas and len(log) == 0:
                    for batch in preloaded_batches(spec, topic.partitions, compression):
                        log.append(batch)
                    # The records stand for a long past, so they count as flushed to the disk, and
                    # survive a power loss.
                    log.write_back()


@lru_cache(maxsize=4)
def preloaded_batches(
    spec: PreloadSpec, num_partitions: int, compression: int = 0
) -> tuple[RecordBatch, ...]:
    """Return the batches of `spec`, in which the groups of `spec` commit in turn.

    The committed offsets rise from record to record. The last results are cached, because in
    virtual time several brokers in one process need the same batches. (A PreloadSpec describes one
    partition, so a few cached results are enough.)
    """
    keys = _keys(spec, num_partitions)
    batches = []
    # Record i has key i modulo the number of keys, so each round overwrites the previous round.
    for base_offset in range(0, spec.commit_records, spec.records_per_batch):
        end = min(base_offset + spec.records_per_batch, spec.commit_records)
        records = tuple(
            Record(
                keys[index % len(keys)],
                encode_offset_commit_value(OffsetCommitValue(offset=index, commit_timestamp_ms=0)),
                0,  # the record's timestamp
            )
            for index in range(base_offset, end)
        )
        batch = build_batch(records, compression=compression, codecs=CODECS)
        batches.append(place_batch(batch, base_offset=base_offset, leader_epoch=0))
    if spec.deleted:
        # A tombstone is a record without a value. 0 is its timestamp.
        tombstones = build_batch(
            tuple(Record(key, None, 0) for key in keys), compression=compression, codecs=CODECS
        )
        batches.append(place_batch(tombstones, base_offset=spec.commit_records, leader_epoch=0))
    if spec.unreadable:
        unreadable = build_batch((UNREADABLE,), compression=compression, codecs=CODECS)
        end = batches[-1].next_offset if batches else 0
        batches.append(place_batch(unreadable, base_offset=end, leader_epoch=0))
    return tuple(batches)


def _keys(spec: PreloadSpec, num_partitions: int) -> list[bytes]:
    """Return the keys of the records, in the order of writing."""
    if spec.deleted:
        return [
            encode_offset_commit_key(group, TopicPartition(topic, partition))
            for group, topic, partition in spec.deleted
        ]
    return [
        encode_offset_commit_key(group, TopicPartition(TOPIC, partition))
        for partition in range(PARTITIONS_PER_GROUP)
        for group in group_ids(spec, num_partitions)
    ]


def group_ids(spec: PreloadSpec, num_partitions: int) -> list[str]:
    """Return the first `spec.groups` names that map to the partition of `spec`."""
    # Both generators are endless: every group id maps to some partition.
    names = (f"preloaded-{number}" for number in count())
    names_of_partition = (
        name for name in names if partition_for(name, num_partitions) == spec.partition
    )
    return [next(names_of_partition) for _ in range(spec.groups)]
