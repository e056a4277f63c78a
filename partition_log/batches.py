"""Record batches: build a batch from records, check it, and give it its offset in a log.

There are two kinds of batches. A batch that is built here has its records as MessagePack. A batch
of a real Kafka client is kept in Kafka's format (`protocol.records.kafka_format`). Only such a
batch has a header in `batch.kafka`.

In both kinds the CRC-32C covers every field except `base_offset` and `partition_leader_epoch`, as
in Kafka's DefaultRecordBatch. A leader sets these two fields when it appends a producer's batch,
and need not compute the CRC again.

A compaction of the log may remove records from a batch. `batch.cleaned` then says which offsets the
remaining records have.
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
"""The fields that the CRC of a MessagePack batch covers, besides the records: last offset delta,
max timestamp, producer id, producer epoch, is transactional, is control, compression id."""
_SEQUENCE = struct.Struct(">i")
"""The base sequence, which the CRC covers only in a batch that has a base sequence."""


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

    `records` must not be empty. `compression` is the id of a codec in `codecs`, or 0 for no
    compression. A producer does not know `base_offset` and `leader_epoch`, which the leader sets.
    The value -1 of a producer id or an epoch means that the batch has none.

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
    """Return the CRC-32C that `batch` must have.

    In a batch with MessagePack, the CRC covers the header and the records. If the batch has a base
    sequence or `cleaned`, the CRC covers them, too.

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
    """Return CORRUPT_MESSAGE if the CRC or the number of records is wrong, otherwise NONE.

    The records of a batch in Kafka's format are not read, as Kafka's followers do not read them.
    """
    try:
        crc = batch_crc(batch)
    except struct.error:  # a real client has sent a number that is too large for its field
        return ErrorCode.CORRUPT_MESSAGE
    # Only a cleaning may leave a batch without records.
    if crc != batch.crc or (batch.record_count < 1 and batch.cleaned is None):
        return ErrorCode.CORRUPT_MESSAGE
    if batch.kafka is not None:
        # The CRC covers the flags in Kafka's header, but not the fields of `batch` that are derived
        # from these flags.
        return ErrorCode.NONE if flags_match(batch, batch.kafka) else ErrorCode.CORRUPT_MESSAGE
    # The records of a compressed batch are not counted, because the batch would have to be
    # decompressed.
    if not batch.compression and payload_record_count(batch.records) != batch.record_count:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.NONE


def payload_record_count(payload: bytes) -> int:
    """Return the number of records of a payload, which is a MessagePack array.

    The result is -1 if the bytes are no array. For example, a payload with the first byte 0x92 has
    two records.

    Source: MessagePack specification, array formats.
    """
    # The array begins with its length. To decode all records just to count them would be far
    # slower. The length is in the lower half of the first byte (0x90 to 0x9F, "fixarray"), or in
    # the 2 or 4 bytes after it (0xDC "array 16", 0xDD "array 32").
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
    """Return a batch with the header of `batch`, but only with the records that a compaction left.

    `records` may be empty. `cleaned` has the offset of each record, relative to the base offset.
    The max timestamp of a batch without records is -1.

    Raises: SimulationError if the numbers of offsets and records differ.
    """
    if len(cleaned.offset_deltas) != len(records):
        raise SimulationError(f"{len(cleaned.offset_deltas)} offsets for {len(records)} records")
    if batch.kafka is not None:
        # `records` is not used here: the records are found again by their offsets in `cleaned`.
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

    The bytes are copied from the batch. A Record could not be encoded again, because it does not
    keep the record headers of Kafka.
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
    """Return `batch` with its offset and leader epoch in a log. The CRC stays valid."""
    return replace(batch, base_offset=base_offset, partition_leader_epoch=leader_epoch)
