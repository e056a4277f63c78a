"""The values that an OffsetCommit or TxnOffsetCommit stores, and the check of their size.

With each offset the client may send metadata, a string of its own. Kafka does not store the offset
if its metadata is too large.

Source: Kafka `GroupCoordinatorAdapter.createOffsetAndMetadata`,
`GroupMetadataManager.validateOffsetMetadataLength`; docs/kafka/BEHAVIOUR.md 2.6.
"""

from coordinator.turn import Turn
from protocol.ids import TopicPartition
from protocol.messages.offset import OffsetCommitRequestTopic
from protocol.records.offsets import NO_EXPIRE_TIMESTAMP, OffsetCommitValue


def values_to_store(
    turn: Turn,
    topics: tuple[OffsetCommitRequestTopic, ...],
    *,
    expire_timestamp_ms: int = NO_EXPIRE_TIMESTAMP,
) -> tuple[dict[TopicPartition, OffsetCommitValue], dict[TopicPartition, bool]]:
    """Return the values to store, and a flag for each partition: its metadata is too large.

    For example, a request has offsets for partitions 0 and 1 of the topic t, and the metadata for 1
    is too large:

        ({t-0: OffsetCommitValue(...)}, {t-0: False, t-1: True})

    If the request names a partition twice, the last entry counts. `turn` has the settings and the
    time.
    """
    metadata_max = turn.config.offset_metadata_max_bytes
    values: dict[TopicPartition, OffsetCommitValue] = {}
    too_large: dict[TopicPartition, bool] = {}
    for topic in topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            metadata = entry.committed_metadata or ""  # a client may send null
            is_too_large = _java_length(metadata) > metadata_max
            too_large[partition] = is_too_large
            if is_too_large:
                values.pop(partition, None)  # an earlier entry may have set a value
                continue
            values[partition] = OffsetCommitValue(
                offset=entry.committed_offset,
                leader_epoch=entry.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp_ms=turn.now_ms,
                expire_timestamp_ms=expire_timestamp_ms,
            )
    return values, too_large


def partitions_of(topics: tuple[OffsetCommitRequestTopic, ...]) -> list[TopicPartition]:
    """Return the partitions that a commit request names, in the request's order."""
    return [
        TopicPartition(topic.name, entry.partition_index)
        for topic in topics
        for entry in topic.partitions
    ]


def _java_length(text: str) -> int:
    """Return the length of a Java String with this text.

    Java counts units of UTF-16. Kafka compares this number with the limit, although the name of the
    setting says bytes.
    """
    # A unit has two bytes. "surrogatepass" lets half of a surrogate pair count as one unit.
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
