"""The checks that a leader makes of a real client's batch before it appends the batch.

A client may send any bytes. If a batch with unreadable records were stored, no consumer could read
past this batch. So the leader reads the records once. If the topic is compacted, it also checks
that each record has a key. Followers, and a broker that restarts, check only the CRC of a batch.

Source: Kafka `LogValidator.validateBatch`, `validateRecord`.
DEVIATION: offset deltas must be 0, 1, 2 ... in an uncompressed batch, too. A payload that cannot be
decompressed is refused with INVALID_RECORD. Kafka answers UNKNOWN_SERVER_ERROR.
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
    """The reason why a batch is not appended: fields of the answer to the batch's producer."""

    error: ErrorCode
    message: str
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()


def validate_produced(
    batch: RecordBatch, *, codecs: Codecs, is_compacted: bool, log_append_time_ms: int | None
) -> RecordBatch | Refusal:
    """Return the batch as the leader must append it, or the refusal.

    A batch of a real client, in Kafka's format, is checked, and is usually returned unchanged. The
    leader corrects the batch only if its max timestamp is wrong, or if the topic uses
    LogAppendTime. A batch in MessagePack comes from a producer of this project, and is not checked.

    is_compacted: True if each record needs a key.
    log_append_time_ms: the time that all records get if the topic uses LogAppendTime, else None.
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

    # Correct the max timestamp and the bit LOG_APPEND_TIME. The topic's setting decides about the
    # bit, whatever the client has sent.
    max_timestamp_ms = header.base_timestamp_ms + scan.max_timestamp_delta_ms
    attributes = header.attributes & ~LOG_APPEND_TIME
    if log_append_time_ms is not None:
        attributes = header.attributes | LOG_APPEND_TIME
        max_timestamp_ms = log_append_time_ms
    if (attributes, max_timestamp_ms) == (header.attributes, batch.max_timestamp_ms):
        return batch
    settled = KafkaHeader(attributes, header.base_timestamp_ms, header.record_count)
    timed = replace(batch, max_timestamp_ms=max_timestamp_ms, kafka=settled)
    # The CRC covers both changed fields, so it must be computed again.
    return replace(timed, crc=batch_crc(timed))


def _stamped(batch: RecordBatch, timestamp_ms: int, codecs: Codecs) -> RecordBatch:
    """Return a batch in MessagePack in which each record has this timestamp."""
    records = tuple(Record(key, value, timestamp_ms) for key, value, _ in fields_of(batch, codecs))
    payload = encode_records(records)
    if batch.compression:
        payload = codecs.compress(batch.compression, payload)
    timed = replace(batch, records=payload, max_timestamp_ms=timestamp_ms)
    return replace(timed, crc=batch_crc(timed))


def _header_fault(batch: RecordBatch, header: KafkaHeader) -> str | None:
    """Return what is wrong with the header of a client's batch, or None."""
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
