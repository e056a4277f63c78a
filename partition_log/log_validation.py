"""The checks of a client's batch that only a leader makes, before it appends the batch.

A batch in Kafka's format comes from a real client, so its records are read here once, before they
are stored: a stored batch with unreadable records would stop every consumer. In a compacted topic,
which keeps only the last record of each key, every record must have a key. Followers, and a broker
that restarts, check only the CRC.
Source: Kafka `LogValidator.validateBatch`, `validateRecord`.
DEVIATION: offset deltas must be 0, 1, 2 ... in an uncompressed batch, too. A payload that cannot be
decompressed is refused with INVALID_RECORD; Kafka answers UNKNOWN_SERVER_ERROR.
"""

from typing import NamedTuple

from msgspec.structs import replace

from partition_log.batches import batch_crc
from protocol.compression import Codecs
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_ID
from protocol.messages.log import BatchIndexAndErrorMessage
from protocol.records.batch import (
    LOG_APPEND_TIME,
    KafkaHeader,
    Record,
    RecordBatch,
    encode_records,
    fields_of,
    payload_of,
)
from protocol.records.kafka_records import scan_records

_KEYLESS = "Compacted topic cannot accept message without key"
"""Kafka's error message for a record without a key."""


class Refusal(NamedTuple):
    """The reason why a batch is not appended: fields of the answer to its producer."""

    error: ErrorCode
    message: str
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()


def validate_produced(
    batch: RecordBatch, *, codecs: Codecs, is_compacted: bool, log_append_time_ms: int | None
) -> RecordBatch | Refusal:
    """Return the batch as the leader appends it, or the refusal.

    A batch of a real client is in Kafka's format. It is returned unchanged if its max timestamp is
    right and the topic keeps the producer's timestamps. A batch in MessagePack comes from this
    project's own producers; its records are not checked.

    is_compacted: the topic is compacted, so that each record needs a key.
    log_append_time_ms: the timestamp of all records if the topic's message.timestamp.type is
        LogAppendTime; None for CreateTime.
    """
    header = batch.kafka
    if header is None:  # a batch in MessagePack
        return batch if log_append_time_ms is None else _stamped(batch, log_append_time_ms, codecs)

    # Check the header and the records.
    message = _header_fault(batch, header)
    if message is not None:
        return Refusal(ErrorCode.INVALID_RECORD, message)
    try:
        scan = scan_records(payload_of(batch, codecs), header.record_count)
    except ValueError as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    if is_compacted and scan.keyless:
        message = (
            f"{len(scan.keyless)} of {header.record_count} records have no key, "
            "and the topic is compacted"
        )
        record_errors = tuple(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=_KEYLESS)
            for index in scan.keyless
        )
        return Refusal(ErrorCode.INVALID_RECORD, message, record_errors)

    # Correct the max timestamp, and the bit that tells the type of the timestamps. The batch is
    # built anew only if one of them changes.
    max_timestamp_ms = header.base_timestamp_ms + scan.max_timestamp_delta_ms
    # The topic's setting decides the bit LOG_APPEND_TIME, whatever the client has sent.
    attributes = header.attributes & ~LOG_APPEND_TIME
    if log_append_time_ms is not None:
        attributes = header.attributes | LOG_APPEND_TIME
        max_timestamp_ms = log_append_time_ms
    if (attributes, max_timestamp_ms) == (header.attributes, batch.max_timestamp_ms):
        return batch
    settled = KafkaHeader(attributes, header.base_timestamp_ms, header.record_count)
    timed = replace(batch, max_timestamp_ms=max_timestamp_ms, kafka=settled)
    # The CRC covers attributes and max timestamp, so it must be computed again.
    return replace(timed, crc=batch_crc(timed))


def _stamped(batch: RecordBatch, timestamp_ms: int, codecs: Codecs) -> RecordBatch:
    """Return a batch in MessagePack with this timestamp on each record."""
    records = tuple(Record(key, value, timestamp_ms) for key, value, _ in fields_of(batch, codecs))
    payload = encode_records(records)
    if batch.compression:
        payload = codecs.compress(batch.compression, payload)
    timed = replace(batch, records=payload, max_timestamp_ms=timestamp_ms)
    return replace(timed, crc=batch_crc(timed))


def _header_fault(batch: RecordBatch, header: KafkaHeader) -> str | None:
    """Return the fault in the header of a client's batch as text; None if there is no fault."""
    count = batch.last_offset_delta + 1
    if batch.base_offset != 0:
        return f"the base offset is {batch.base_offset}, expected 0 from a client"
    if count <= 0:
        return f"the last offset delta is {batch.last_offset_delta}"
    if header.record_count != count:
        return f"{header.record_count} records for {count} offsets"
    if batch.is_control:
        return "clients are not allowed to write control records"
    if batch.producer_id != NO_PRODUCER_ID and batch.base_sequence < 0:
        return f"the sequence number of producer {batch.producer_id} is {batch.base_sequence}"
    return None
