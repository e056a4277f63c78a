"""Record batches: build a batch from records, check it, and give it its offset in a log.

A batch that is built here holds its records as MessagePack. A batch of a real client is in Kafka's
format, with Kafka's CRC (`protocol.records.kafka_format`). `batch.kafka` is the header of a batch
in Kafka's format, and None for MessagePack.

In both formats the CRC-32C covers every field except `base_offset` and `partition_leader_epoch`, as
in Kafka's DefaultRecordBatch. So a leader, which sets these two fields of a producer's batch, need
not compute the CRC again.

A cleaning (log compaction) removes records from a batch. It sets `batch.cleaned`, which has the
offset deltas of the records that are left.
"""

import struct
from collections.abc import Sequence

import google_crc32c
import msgspec
from msgspec.structs import replace

from protocol.compression import NO_CODECS, Codecs
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import NO_SEQUENCE
from protocol.records.batch import (
    Cleaned,
    KafkaHeader,
    Record,
    RecordBatch,
    encode_records,
    kafka_records_of,
    payload_of,
)
from protocol.records.kafka_format import flags_match, kafka_crc

_encode = msgspec.msgpack.Encoder().encode
_CRC_HEADER = struct.Struct(">iqqi??B")
"""Fields that the CRC covers, besides the records: last offset delta, max timestamp, producer id,
producer epoch, is transactional, is control, compression id."""
_SEQUENCE = struct.Struct(">i")
"""The base sequence of an idempotent producer's batch, which the CRC covers, too."""


def build_batch(
    records: tuple[Record, ...],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    compression: int = 0,
    codecs: Codecs = NO_CODECS,
    base_sequence: int = NO_SEQUENCE,
) -> RecordBatch:
    """Return a batch of `records` with its CRC.

    `records` is non-empty. `compression` is the id of one of `codecs`, 0 for none. A
    producer leaves `base_offset` and `leader_epoch` at their defaults; the leader sets them.
    Raises: SimulationError if there are no records.
    """
    if not records:
        raise SimulationError("a batch needs at least one record, got none")

    max_timestamp_ms = records[0].timestamp_ms
    for record in records:
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
    payload = encode_records(records)
    if compression:
        payload = codecs.compress(compression, payload)
    last_offset_delta = len(records) - 1

    header = _CRC_HEADER.pack(
        last_offset_delta,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        is_transactional,
        is_control,
        compression,
    )
    crc = google_crc32c.extend(google_crc32c.value(header), payload)
    if base_sequence != NO_SEQUENCE:
        crc = google_crc32c.extend(crc, _SEQUENCE.pack(base_sequence))

    return RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        last_offset_delta=last_offset_delta,
        max_timestamp_ms=max_timestamp_ms,
        records=payload,
        crc=crc,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
        compression=compression,
        base_sequence=base_sequence,
    )


def batch_crc(batch: RecordBatch) -> int:
    """Return the CRC-32C that `batch` must carry.

    For MessagePack, the CRC covers the header and the records. It then covers the base sequence and
    `cleaned`, as far as the batch has them.
    Raises: struct.error if a field does not fit its width.
    """
    if batch.kafka is not None:
        return kafka_crc(batch, batch.kafka, batch.records)
    header = _CRC_HEADER.pack(
        batch.last_offset_delta,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.is_transactional,
        batch.is_control,
        batch.compression,
    )
    crc = google_crc32c.extend(google_crc32c.value(header), batch.records)
    if batch.base_sequence != NO_SEQUENCE:
        crc = google_crc32c.extend(crc, _SEQUENCE.pack(batch.base_sequence))
    if batch.cleaned is not None:
        crc = google_crc32c.extend(crc, _encode(batch.cleaned))
    return int(crc)


def check_batch(batch: RecordBatch) -> ErrorCode:
    """Return CORRUPT_MESSAGE if the CRC or the record count is wrong, else NONE.

    The records of a batch in Kafka's format are not read, as Kafka's followers do not read them.
    """
    try:
        crc = batch_crc(batch)
    except struct.error:  # a field too large for its width, which only a client can send
        return ErrorCode.CORRUPT_MESSAGE
    # Only a cleaning may leave a batch without records.
    if crc != batch.crc or (batch.record_count < 1 and batch.cleaned is None):
        return ErrorCode.CORRUPT_MESSAGE
    if batch.kafka is not None:
        return ErrorCode.NONE if flags_match(batch, batch.kafka) else ErrorCode.CORRUPT_MESSAGE
    # The record count of a compressed batch is not checked, since this would need the codec.
    if not batch.compression and payload_record_count(batch.records) != batch.record_count:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.NONE


def payload_record_count(payload: bytes) -> int:
    """Return the number of records in the header of a payload, which is a MessagePack array.

    Returns -1 for bytes that are no array. Source: MessagePack specification, array formats.
    """
    # Only the array's header is read, because decoding a whole batch to count its records costs far
    # more. In the form "fixarray" (0x90 to 0x9F) the header is one byte, whose lower half is the
    # length. "array 16" (0xDC) and "array 32" (0xDD) have the length in the next 2 or 4 bytes.
    if not payload:
        return -1
    marker = payload[0]
    if marker & 0xF0 == 0x90:
        return marker & 0x0F
    if marker == 0xDC:
        return int.from_bytes(payload[1:3], "big")
    if marker == 0xDD:
        return int.from_bytes(payload[1:5], "big")
    return -1


def cleaned_batch(
    batch: RecordBatch, cleaned: Cleaned, records: Sequence[Record], codecs: Codecs = NO_CODECS
) -> RecordBatch:
    """Return a batch with the header of `batch`, and with the records that a cleaning has left.

    `records` may be empty. `cleaned` has one offset delta for each record. The compression stays.
    A batch without records has the max timestamp -1.
    Raises: SimulationError if the numbers of deltas and records differ.
    """
    if len(cleaned.offset_deltas) != len(records):
        raise SimulationError(f"{len(cleaned.offset_deltas)} offsets for {len(records)} records")
    if batch.kafka is not None:
        # The records are found again by their offset deltas in `cleaned`.
        return _cleaned_kafka_batch(batch, batch.kafka, cleaned, codecs)
    payload = encode_records(tuple(records))
    if batch.compression:
        payload = codecs.compress(batch.compression, payload)
    left = replace(
        batch,
        records=payload,
        max_timestamp_ms=max((record.timestamp_ms for record in records), default=-1),
        cleaned=cleaned,
    )
    return replace(left, crc=batch_crc(left))


def _cleaned_kafka_batch(
    batch: RecordBatch, header: KafkaHeader, cleaned: Cleaned, codecs: Codecs
) -> RecordBatch:
    """Return a batch in Kafka's format with the bytes of the records that are left.

    The bytes of each record are copied, not encoded again: a Record lacks Kafka's record headers.
    """
    payload = payload_of(batch, codecs)
    kept = frozenset(cleaned.offset_deltas)
    left = [
        (record, timestamp_ms)
        for record, timestamp_ms in kafka_records_of(batch, header, payload)
        if record.offset_delta in kept
    ]
    kept_payload = b"".join(payload[record.start : record.end] for record, _ in left)
    if batch.compression:
        kept_payload = codecs.compress(batch.compression, kept_payload)
    smaller = replace(
        batch,
        records=kept_payload,
        max_timestamp_ms=max((timestamp_ms for _, timestamp_ms in left), default=-1),
        cleaned=cleaned,
        kafka=replace(header, record_count=len(left)),
    )
    return replace(smaller, crc=batch_crc(smaller))


def place_batch(batch: RecordBatch, *, base_offset: int, leader_epoch: int) -> RecordBatch:
    """Return `batch` with its offset and leader epoch in a log; the CRC stays valid."""
    return replace(batch, base_offset=base_offset, partition_leader_epoch=leader_epoch)
