"""Kafka's format of record batches (magic 2), and the translation between it and RecordBatch.

A broker of this project can serve real Kafka clients. It decodes the batches of a real producer
with `decode_batches`, and encodes batches for a real consumer with `encode_batch`. The batch of a
real producer stays as it is, except for the base offset and the leader epoch, which the broker
sets. The project's own nodes write batches whose records are MessagePack. `encode_batch` translates
such records into Kafka's format.

The header of a batch has 61 bytes. Its first part has base offset, batch length, leader epoch,
magic and CRC-32C. The second part has attributes, last offset delta, base timestamp, max timestamp,
producer id, producer epoch, base sequence and record count. The CRC covers the second part and the
records.

Source: Kafka `DefaultRecordBatch`, `ByteBufferLogInputStream`, `LegacyRecord`.
DEVIATION: the delete horizon of a cleaned batch is not written, because only Kafka's own cleaner
reads it.
"""

import struct

import google_crc32c

from protocol.compression import NO_CODECS, Codecs, CompressionType
from protocol.errors import ErrorCode
from protocol.records.batch import KafkaHeader, RecordBatch, decode_records, payload_of
from protocol.records.kafka_records import encode_kafka_records

MAGIC = 2
"""The version of the format. Magic 0 and 1 are older formats, which clients no longer use."""
_OVERHEAD = struct.Struct(">qi")
"""Base offset and batch length. The batch length counts the bytes that follow these two fields."""
# All fields of the header, in the order of the module's docstring. `>` means big-endian. b, h, i
# and q are signed integers of 1, 2, 4 and 8 bytes; I is an unsigned integer of 4 bytes.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED = struct.Struct(">hiqqqhii")
"""The part of the header that the CRC covers."""
_MAGIC_AT = 16
"""Position of the magic byte in a batch."""
_CHECKED_AT = 21
"""Position of the first byte that the CRC covers."""
_SMALLEST_LENGTH = 14
"""The smallest legal batch length. A message of the old magic 0 has this length if it has neither
key nor value."""
# Bits of a batch's attributes.
_CODEC_BITS = 0x07
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class InvalidBatch(ValueError):
    """Bytes are no batch that a broker accepts. `error_code` is Kafka's answer to the producer."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def decode_batches(data: bytes) -> tuple[RecordBatch, ...]:
    """Return the batches in `data`, in the order in which the producer sent them.

    An incomplete batch at the end is left out, as in Kafka, so the result may be empty. This
    function neither decompresses nor reads the records. The partition's leader reads the records
    before it appends the batch.

    Raises: InvalidBatch with CORRUPT_MESSAGE if the length, magic or CRC is wrong, with
        INVALID_RECORD for magic 0 or 1, or with UNSUPPORTED_COMPRESSION_TYPE.
    """
    batches: list[RecordBatch] = []
    position = 0
    # The loop goes on while there are enough bytes up to the magic, even if the batch is
    # incomplete. As in Kafka, an unknown magic is an error also in an incomplete batch.
    while len(data) - position >= _MAGIC_AT + 1:
        _, length = _OVERHEAD.unpack_from(data, position)
        if length < _SMALLEST_LENGTH:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at byte {position} has a length of {length}, "
                f"expected at least {_SMALLEST_LENGTH}",
            )
        end = position + _OVERHEAD.size + length
        _check_magic(data[position + _MAGIC_AT], position)
        if end > len(data):
            break
        batches.append(_decode_batch(data, position, end))
        position = end
    return tuple(batches)


def encode_batch(batch: RecordBatch, codecs: Codecs = NO_CODECS) -> bytes:
    """Return the bytes of a batch in Kafka's format, whatever format its records have.

    MessagePack records are translated. If they are compressed, `codecs` decompress the records and
    compress the translation.
    Raises: msgspec.MsgspecError or ValueError if MessagePack records cannot be read.
    """
    # The batch of a real client has its payload, CRC and header in Kafka's format already.
    header = batch.kafka
    payload, crc = batch.records, batch.crc
    if header is None:
        payload, header = _translate(batch, codecs)
        crc = kafka_crc(batch, header, payload)
    return (
        _HEADER.pack(
            batch.base_offset,
            # The batch length: all bytes after the two fields of _OVERHEAD.
            _HEADER.size - _OVERHEAD.size + len(payload),
            batch.partition_leader_epoch,
            MAGIC,
            crc,
            header.attributes,
            batch.last_offset_delta,
            header.base_timestamp_ms,
            batch.max_timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            header.record_count,
        )
        + payload
    )


def kafka_crc(batch: RecordBatch, header: KafkaHeader, payload: bytes) -> int:
    """Return the CRC-32C that a batch with this header and payload has in Kafka's format.

    Raises: struct.error if a field does not fit its width.
    """
    checked = _CHECKED.pack(
        header.attributes,
        batch.last_offset_delta,
        header.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        header.record_count,
    )
    return int(google_crc32c.extend(google_crc32c.value(checked), payload))


def flags_match(batch: RecordBatch, header: KafkaHeader) -> bool:
    """Return True if the flags in the header's attributes equal the fields of the batch."""
    attributes = header.attributes
    return (
        attributes & _CODEC_BITS == batch.compression
        and bool(attributes & _TRANSACTIONAL) == batch.is_transactional
        and bool(attributes & _CONTROL) == batch.is_control
    )


def _check_magic(magic: int, position: int) -> None:
    if magic in (0, 1):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"the batch at byte {position} has magic {magic}, expected {MAGIC}",
        )
    if magic != MAGIC:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at byte {position} has an unknown magic {magic}, expected {MAGIC}",
        )


def _decode_batch(data: bytes, position: int, end: int) -> RecordBatch:
    """Return the batch in `data[position:end]`. Raises: InvalidBatch."""
    if end - position < _HEADER.size:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at byte {position} has {end - position} bytes, "
            f"expected at least {_HEADER.size}",
        )
    (
        base_offset,
        _length,
        leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _HEADER.unpack_from(data, position)
    checked = bytes(memoryview(data)[position + _CHECKED_AT : end])
    if int(google_crc32c.value(checked)) != crc:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at byte {position} has the CRC {crc}, expected "
            f"{int(google_crc32c.value(checked))}",
        )
    compression = attributes & _CODEC_BITS
    # The three bits have one of the values 0 to 7. Kafka has codecs with the numbers 0 to 4.
    if compression > max(CompressionType):
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at byte {position} is compressed with codec {compression}",
        )
    return RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        last_offset_delta=last_offset_delta,
        max_timestamp_ms=max_timestamp_ms,
        records=checked[_CHECKED.size :],
        crc=crc,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=bool(attributes & _TRANSACTIONAL),
        is_control=bool(attributes & _CONTROL),
        compression=compression,
        base_sequence=base_sequence,
        kafka=KafkaHeader(attributes, base_timestamp_ms, record_count),
    )


def _translate(batch: RecordBatch, codecs: Codecs) -> tuple[bytes, KafkaHeader]:
    """Translate a batch with MessagePack records into Kafka's format.

    Return the translated payload, compressed like the payload of the batch, and the header for it.
    """
    # In Kafka's format, a record has its distances from the base offset and the base timestamp of
    # the batch. The timestamp of the first record becomes the base timestamp.
    records = decode_records(payload_of(batch, codecs))
    deltas = range(len(records)) if batch.cleaned is None else batch.cleaned.offset_deltas
    base_timestamp_ms = records[0].timestamp_ms if records else -1  # -1: Kafka's "no timestamp"
    payload = encode_kafka_records(
        (delta, record.timestamp_ms - base_timestamp_ms, record.key, record.value)
        for delta, record in zip(deltas, records, strict=True)
    )
    if batch.compression:
        payload = codecs.compress(batch.compression, payload)
    attributes = (
        batch.compression
        | (_TRANSACTIONAL if batch.is_transactional else 0)
        | (_CONTROL if batch.is_control else 0)
    )
    return payload, KafkaHeader(attributes, base_timestamp_ms, len(records))
