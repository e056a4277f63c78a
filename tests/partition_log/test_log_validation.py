"""The leader's checks of a client's batch, and the fields of the batch that the leader changes.

- A batch of a real client has Kafka's bytes and a KafkaHeader (`batch.kafka`). A batch of our own
  producers (`batch("own")`) has MessagePack (a compact binary JSON) instead.
- `client_batch("a", "b")` returns a batch in Kafka's format. Each record has the value also as
  its key, and the timestamp 7 ms.
- `resealed` returns a batch with changed fields and a new CRC (checksum).
- A producer numbers its records with sequence numbers.
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
"""Wall clock time at which the leader appends."""


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
    append(leading, client_batch("before"))
    (produced,) = decode_batches(recorded.data)
    info = append(leading, produced)
    assert (info.error, info.base_offset) == (ErrorCode.NONE, 1)
    assert (info.next_offset, info.log_append_time_ms) == (1 + len(recorded.records), -1)
    # The CRC does not cover the two fields that the leader sets. The batch begins with its base
    # offset (8 bytes), its length (4) and its leader epoch (4).
    stored = encode_batch(leading.log.storage.batch(1))
    assert stored[8:12] + stored[16:] == recorded.data[8:12] + recorded.data[16:]
    # The leader has set base offset 1 and its leader epoch, 5.
    assert stored[:8] + stored[12:16] == (1).to_bytes(8, "big") + (5).to_bytes(4, "big")


def header(produced: RecordBatch, **changes: int) -> KafkaHeader:
    """Return the header of a batch with changed fields."""
    assert produced.kafka is not None
    return replace(produced.kafka, **changes)


GZIP, ZSTD = 1, 4
"""Kafka's numbers of two compression codecs."""
PLAIN = client_batch("a", "b", "c")
PACKED = client_batch("a", "b", "c", compression=GZIP)


@pytest.mark.parametrize(
    ("produced", "message"),
    [
        (resealed(PLAIN, base_offset=1), "the base offset is 1, expected 0 from a client"),
        (resealed(PLAIN, last_offset_delta=-1), "the last offset delta is -1"),
        (resealed(PLAIN, last_offset_delta=1), "3 records for 2 offsets"),
        (resealed(PLAIN, header(PLAIN, record_count=2)), "2 records for 3 offsets"),
        (
            resealed(client_batch("a", producer_id=4), base_sequence=-1),
            "the sequence number of producer 4 is -1",
        ),
        (
            # 0x20 is the bit of control batches, which hold transaction markers.
            resealed(PLAIN, header(PLAIN, attributes=0x20), is_control=True),
            "clients are not allowed to write control records",
        ),
        (
            resealed(PLAIN, header(PLAIN, record_count=4), last_offset_delta=3),
            "record 3 of 4 is cut short",
        ),
        (
            resealed(replace(PACKED, records=PACKED.records[:-3])),
            "codec 1: .* bytes end in the middle",
        ),
        (
            resealed(
                replace(
                    PLAIN, records=encode_kafka_records([(n * 2, 0, b"", b"") for n in range(3)])
                )
            ),
            "record 1 has the offset delta 2, expected 1",
        ),
    ],
)
def test_batch_that_no_client_may_send_is_refused_and_changes_nothing(
    produced: RecordBatch, message: str
) -> None:
    """INVALID_RECORD makes the client give up. Source: Kafka LogValidator.

    Each case has one field or record that contradicts another one.
    """
    leading = partition()
    info = append(leading, produced)
    assert info.error is ErrorCode.INVALID_RECORD
    assert info.error_message is not None
    assert re.search(message, info.error_message), info.error_message
    assert (leading.log_end_offset, len(leading.log.producers)) == (0, 0)


def test_record_without_key_is_refused_only_by_a_compacted_topic() -> None:
    """The error names the place of each such record in the batch; Kafka's clients print it."""
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
    """Lookups by time need the right timestamp. The leader computes a new CRC, as Kafka does."""
    leading = partition()
    append(leading, resealed(PLAIN, max_timestamp_ms=5_000))
    stored = leading.log.storage.batch(0)
    assert stored.max_timestamp_ms == 7  # the time of all records of `client_batch`
    # The comparison includes the CRC: it is that of PLAIN, not that of the resealed batch.
    assert stored == replace(PLAIN, partition_leader_epoch=5)


def test_log_append_time_is_the_leaders_time_of_every_record() -> None:
    """message.timestamp.type LogAppendTime applies to batches of both formats."""
    leading = partition(uses_log_append_time=True)
    info = append(leading, PACKED)
    assert (info.error, info.log_append_time_ms) == (ErrorCode.NONE, APPEND_TIME_MS)
    append(leading, batch("own"))

    for index in (0, 1):
        stored = leading.log.storage.batch(index)
        timestamps_ms = {record.timestamp_ms for _, record in records_of(stored, CODECS)}
        assert timestamps_ms == {APPEND_TIME_MS}
        assert stored.max_timestamp_ms == APPEND_TIME_MS
    # The records themselves are unchanged: the attribute tells readers to use the batch's time.
    kept = leading.log.storage.batch(0)
    assert kept.records == PACKED.records
    assert kept.kafka is not None
    assert kept.kafka.attributes == GZIP | LOG_APPEND_TIME


def test_log_append_time_attribute_of_a_client_is_cleared() -> None:
    """In a topic with CreateTime each record has the timestamp of its producer.

    The attribute of LogAppendTime would give all records the batch's time, here 3 ms.
    """
    leading = partition()
    append(leading, resealed(PLAIN, header(PLAIN, attributes=LOG_APPEND_TIME), max_timestamp_ms=3))
    stored = leading.log.storage.batch(0)
    assert {record.timestamp_ms for _, record in records_of(stored)} == {7}


def test_size_is_checked_before_the_records_are_read() -> None:
    """message.max.bytes is checked before the CRC; the size includes the header.

    segment.bytes is checked last, when the batch is known to be valid.
    """
    damaged = replace(PLAIN, crc=1)
    small = PLAIN.size_in_bytes
    assert append(partition(message_max_bytes=small - 1), damaged).error is (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    assert append(partition(message_max_bytes=small), damaged).error is ErrorCode.CORRUPT_MESSAGE
    too_small_segment = partition(segment_bytes=small - 1)
    assert append(too_small_segment, damaged).error is ErrorCode.CORRUPT_MESSAGE
    assert append(too_small_segment, PLAIN).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_flags_that_contradict_the_attributes_are_corrupt() -> None:
    """A RecordBatch repeats flags of its KafkaHeader (`attributes`), so the two must agree."""
    for changed in (
        replace(PLAIN, is_control=True),
        replace(PLAIN, is_transactional=True),
        replace(PLAIN, compression=2),
    ):
        assert append(partition(), changed).error is ErrorCode.CORRUPT_MESSAGE


def test_follower_stores_the_bytes_of_the_leader() -> None:
    """The follower copies the compressed bytes and does not read the records."""
    leading, following = leader(), following_replica()
    info = leading.append_batch(
        client_batch("a", "b", compression=ZSTD), required_acks=1, now_us=0, codecs=CODECS
    )
    assert info.error is ErrorCode.NONE
    replicate(leading, following)
    assert following.log.storage.batch(0) == leading.log.storage.batch(0)
