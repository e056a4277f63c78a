"""The leader's checks of a client's batch, and the fields of the batch that the leader changes.

`client_batch("a", "b")` is a batch of a real client, in Kafka's format, with a KafkaHeader
(`batch.kafka`). Its records have the keys and values "a" and "b", and the timestamp 7 ms.
`resealed` changes fields of such a batch, and gives the batch a valid CRC again. `batch("ours")` is
a batch of our simulated producers, which has another format and no KafkaHeader.
"""

import re

import pytest
from msgspec.structs import replace

from cluster.storage.compression import CODECS
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import AppendInfo, ReplicaConfig
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.log import BatchIndexAndErrorMessage
from protocol.records.batch import LOG_APPEND_TIME, KafkaHeader, RecordBatch, records_of
from protocol.records.kafka_format import decode_batches, encode_batch
from protocol.records.kafka_records import encode_kafka_records
from tests.support.builders.client_batches import client_batch, resealed
from tests.support.builders.partition_logs import EVERYBODY, A, batch, leader, replicate
from tests.support.builders.partition_logs import follower as following_replica
from tests.support.recorded_batches import RecordedBatch, recorded_batches

RECORDED = recorded_batches()
"""Batches that were recorded from real clients."""


def partition(
    *,
    is_compacted: bool = False,
    uses_log_append_time: bool = False,
    message_max_bytes: int = 1_000_000,
    segment_bytes: int = 1_000_000,
) -> Partition:
    """Return a leader of a data partition without other replicas, in leader epoch 5."""
    log = PartitionLog(TopicPartition("orders", 0), MemoryLogStorage())
    log.is_compacted = is_compacted
    config = ReplicaConfig(
        uses_log_append_time=uses_log_append_time,
        message_max_bytes=message_max_bytes,
        segment_bytes=segment_bytes,
    )
    leading = Partition(log.topic_partition, A, log, config)
    leading.update_eligible_brokers(EVERYBODY)
    leading.make_leader(leader_epoch=5, partition_epoch=1, replicas=(A,), isr=(A,), now_us=0)
    return leading


APPEND_TIME_MS = 99
"""The time on the leader's clock at which the leader appends."""


def append(leading: Partition, produced: RecordBatch) -> AppendInfo:
    """Append a client's batch as a broker does, at APPEND_TIME_MS."""
    return leading.append_batch(
        produced, required_acks=ACKS_ALL, now_us=0, wall_ms=APPEND_TIME_MS, codecs=CODECS
    )


@pytest.mark.parametrize(
    "recorded",
    [recorded for recorded in RECORDED if not recorded.is_transactional],
    ids=lambda recorded: recorded.name,
)
def test_batch_of_a_real_client_is_stored_byte_for_byte(recorded: RecordedBatch) -> None:
    """The leader changes only base offset and leader epoch, also in a compressed batch."""
    leading = partition()
    append(leading, client_batch("before"))  # so the next batch gets another base offset than 0
    (produced,) = decode_batches(recorded.data)
    info = append(leading, produced)
    assert (info.error, info.base_offset) == (ErrorCode.NONE, 1)
    assert (info.next_offset, info.log_append_time_ms) == (1 + len(recorded.records), -1)
    # A batch begins with its base offset (8 bytes), its length (4) and its leader epoch (4). The
    # leader has set the base offset 1 and its leader epoch, 5.
    stored = encode_batch(leading.log.storage.batch(1))
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[8:12] == recorded.data[8:12]
    assert stored[12:16] == (5).to_bytes(4, "big")
    assert stored[16:] == recorded.data[16:]


def header(produced: RecordBatch, **changes: int) -> KafkaHeader:
    """Return the header of a batch with changed fields."""
    assert produced.kafka is not None
    return replace(produced.kafka, **changes)


GZIP, ZSTD = 1, 4
"""Kafka's numbers of two compression codecs."""
UNCOMPRESSED = client_batch("a", "b", "c")
COMPRESSED = client_batch("a", "b", "c", compression=GZIP)
"""Two valid batches with the same records."""


@pytest.mark.parametrize(
    ("produced", "message"),
    [
        (resealed(UNCOMPRESSED, base_offset=1), "the base offset is 1, expected 0 from a client"),
        (resealed(UNCOMPRESSED, last_offset_delta=-1), "the last offset delta is -1"),
        (resealed(UNCOMPRESSED, last_offset_delta=1), "3 records for 2 offsets"),
        (resealed(UNCOMPRESSED, header(UNCOMPRESSED, record_count=2)), "2 records for 3 offsets"),
        (
            resealed(client_batch("a", producer_id=4), base_sequence=-1),
            "the sequence number of producer 4 is -1",
        ),
        (
            # 0x20 marks a control batch, which has the marker of a transaction.
            resealed(UNCOMPRESSED, header(UNCOMPRESSED, attributes=0x20), is_control=True),
            "clients are not allowed to write control records",
        ),
        (
            resealed(UNCOMPRESSED, header(UNCOMPRESSED, record_count=4), last_offset_delta=3),
            "record 3 of 4 is cut short",
        ),
        (
            resealed(replace(COMPRESSED, records=COMPRESSED.records[:-3])),
            "codec 1: .* bytes end in the middle",
        ),
        (
            resealed(
                replace(
                    UNCOMPRESSED,
                    # The first number of each record is its offset delta: here 0, 2 and 4.
                    records=encode_kafka_records([(2 * index, 0, b"", b"") for index in range(3)]),
                )
            ),
            "record 1 has the offset delta 2, expected 1",
        ),
    ],
)
def test_batch_that_no_client_may_send_is_refused_and_changes_nothing(
    produced: RecordBatch, message: str
) -> None:
    """In each case a field or record contradicts another field or record.

    The error INVALID_RECORD makes the client give up.

    Source: Kafka LogValidator.
    """
    leading = partition()
    info = append(leading, produced)
    assert info.error is ErrorCode.INVALID_RECORD
    assert info.error_message is not None
    assert re.search(message, info.error_message), info.error_message
    assert (leading.log_end_offset, len(leading.log.producers)) == (0, 0)


def test_record_without_key_is_refused_only_by_a_compacted_topic() -> None:
    """The answer lists the places of the records without a key. Kafka's clients print this list."""
    produced = client_batch("a", "b", has_keys=False)
    assert append(partition(), produced).error is ErrorCode.NONE
    leading = partition(is_compacted=True)
    info = append(leading, produced)
    assert info.error is ErrorCode.INVALID_RECORD
    assert info.error_message == "2 of 2 records have no key, and the topic is compacted"
    assert info.record_errors == tuple(
        BatchIndexAndErrorMessage(
            batch_index=index,
            batch_index_error_message="Compacted topic cannot accept message without key",
        )
        for index in range(2)
    )
    assert leading.log_end_offset == 0


def test_wrong_max_timestamp_is_corrected() -> None:
    """Clients look up offsets by time, so the max timestamp of a batch must be right.

    As in Kafka, the leader also computes a new CRC.
    """
    leading = partition()
    append(leading, resealed(UNCOMPRESSED, max_timestamp_ms=5_000))
    stored = leading.log.storage.batch(0)
    assert stored.max_timestamp_ms == 7  # the time of all records of `client_batch`
    # The CRC is right for the corrected timestamp: the stored batch equals UNCOMPRESSED, which had
    # this timestamp from the beginning.
    assert stored == replace(UNCOMPRESSED, partition_leader_epoch=5)


def test_log_append_time_gives_every_record_the_leaders_time() -> None:
    """message.timestamp.type LogAppendTime applies to batches of both formats."""
    leading = partition(uses_log_append_time=True)
    info = append(leading, COMPRESSED)
    assert (info.error, info.log_append_time_ms) == (ErrorCode.NONE, APPEND_TIME_MS)
    append(leading, batch("ours"))

    for index in (0, 1):
        stored = leading.log.storage.batch(index)
        timestamps_ms = {record.timestamp_ms for _, record in records_of(stored, CODECS)}
        assert timestamps_ms == {APPEND_TIME_MS}
        assert stored.max_timestamp_ms == APPEND_TIME_MS
    # The bytes of the first batch's records are unchanged. The attribute LOG_APPEND_TIME makes
    # readers use the batch's time.
    kept = leading.log.storage.batch(0)
    assert kept.records == COMPRESSED.records
    assert kept.kafka is not None
    assert kept.kafka.attributes == GZIP | LOG_APPEND_TIME


def test_log_append_time_attribute_of_a_client_is_cleared() -> None:
    """This topic has CreateTime: each record keeps the timestamp of its producer, 7 ms.

    With the client's attribute, all records would have the batch's time, here 3 ms.
    """
    leading = partition()
    append(
        leading,
        resealed(
            UNCOMPRESSED, header(UNCOMPRESSED, attributes=LOG_APPEND_TIME), max_timestamp_ms=3
        ),
    )
    stored = leading.log.storage.batch(0)
    assert {record.timestamp_ms for _, record in records_of(stored)} == {7}


def test_each_size_limit_is_checked_at_its_place_in_the_order() -> None:
    """message.max.bytes is checked before the CRC, and segment.bytes after it.

    The size includes the batch's header.
    """
    corrupt = replace(UNCOMPRESSED, crc=1)
    size = UNCOMPRESSED.size_in_bytes
    with_small_messages = partition(message_max_bytes=size - 1)
    assert append(with_small_messages, corrupt).error is ErrorCode.MESSAGE_TOO_LARGE
    with_exact_messages = partition(message_max_bytes=size)
    assert append(with_exact_messages, corrupt).error is ErrorCode.CORRUPT_MESSAGE

    with_small_segments = partition(segment_bytes=size - 1)
    assert append(with_small_segments, corrupt).error is ErrorCode.CORRUPT_MESSAGE
    assert append(with_small_segments, UNCOMPRESSED).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_flags_that_contradict_the_attributes_are_corrupt() -> None:
    """A RecordBatch repeats some flags of its KafkaHeader's `attributes`. Both must agree."""
    for contradictory in (
        replace(UNCOMPRESSED, is_control=True),
        replace(UNCOMPRESSED, is_transactional=True),
        replace(UNCOMPRESSED, compression=2),
    ):
        assert append(partition(), contradictory).error is ErrorCode.CORRUPT_MESSAGE


def test_follower_stores_the_bytes_of_the_leader() -> None:
    """The follower copies the compressed bytes and does not read the records."""
    leading, following = leader(), following_replica()
    info = leading.append_batch(
        client_batch("a", "b", compression=ZSTD), required_acks=1, now_us=0, codecs=CODECS
    )
    assert info.error is ErrorCode.NONE
    replicate(leading, following)
    assert following.log.storage.batch(0) == leading.log.storage.batch(0)
