"""Records and record batches, in logs and in the messages Produce and Fetch.

There are two kinds of batches:
- This project's own nodes write the records of a batch as MessagePack. Kafka's encoding would be
  slow in Python.
- A batch of a real Kafka client is kept in *Kafka's format*, byte for byte. Such a batch has a
  KafkaHeader.
`kafka_format` translates both kinds into the bytes that a real client reads.

This module has the structs, and functions that read the records of a batch of either kind.
`partition_log.batches` builds batches and computes their CRCs.

With `gc=False`, Python's garbage collector ignores a struct. This is safe if the struct cannot be
part of a cycle of references.
"""

import msgspec

from protocol.compression import NO_CODECS, Codecs
from protocol.records.kafka_records import KafkaRecord, parse_records


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record. A record whose `value` is None is a tombstone, which deletes the key.

    `timestamp_ms` is the time at which the producer made the record, in milliseconds since the
    epoch, or -1 if it is unknown.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1


class Cleaned(msgspec.Struct, frozen=True, array_like=True):
    """What a compaction notes in a batch from which it has removed records.

    `offset_deltas` says which records are left. For example, (0, 3) in a batch with the base offset
    20 means that the records at the offsets 20 and 23 are left.

    `delete_horizon_ms` is a time in milliseconds since the epoch. A compaction after this time
    removes the batch's tombstones. It also removes the batch's marker, the record that ends a
    transaction. A batch without tombstones and marker has -1 (KIP-534).
    """

    offset_deltas: tuple[int, ...]
    delete_horizon_ms: int = -1


HEADER_BYTES = 61
"""Size of the batch header in Kafka's format."""
LOG_APPEND_TIME = 0x08
"""A bit of a batch's attributes. If this bit is set, each record of the batch has the timestamp
`max_timestamp_ms` of the batch."""


class KafkaHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Those fields of a batch in Kafka's format that a batch in MessagePack does not need.

    `attributes` are 16 bits, as the client sent them. Some of the bits are the codec and the flags
    "transactional" and "control". The codec and both flags are also fields of the RecordBatch, from
    which code reads them for batches of either kind.
    """

    attributes: int
    base_timestamp_ms: int
    record_count: int


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A batch of records, at the offsets `base_offset` to `base_offset + last_offset_delta`.

    - `records`: the bytes of one record for each of these offsets. If a compaction has removed
      records, `cleaned` says which are left, and `records` has only these. The bytes are compressed
      unless `compression`, the number of a CompressionType, is 0.
    - `kafka`: None if the uncompressed bytes are MessagePack. Otherwise the bytes are in Kafka's
      encoding, and `crc` is the CRC of Kafka's format.
    - `crc`: a checksum of every field except `base_offset` and `partition_leader_epoch`. The
      checksum leaves these two out because the leader sets them, not the producer.
    - `base_sequence`: the number that the producer gave to the first record. An idempotent producer
      numbers its records from 0. The field is -1 if the producer does not number its records.

    Source: Kafka `DefaultRecordBatch`.
    """

    base_offset: int
    partition_leader_epoch: int
    last_offset_delta: int
    max_timestamp_ms: int
    records: bytes
    crc: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    is_control: bool = False
    cleaned: Cleaned | None = None
    compression: int = 0
    base_sequence: int = -1
    kafka: KafkaHeader | None = None

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def record_count(self) -> int:
        """Number of records in the batch."""
        if self.kafka is not None:
            return self.kafka.record_count
        if self.cleaned is not None:
            return len(self.cleaned.offset_deltas)
        return self.last_offset_delta + 1

    @property
    def size_in_bytes(self) -> int:
        """Size of the batch in Kafka's format: header and records. Limits apply to this size."""
        return HEADER_BYTES + len(self.records)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Record, ...])
_fields_decoder = msgspec.msgpack.Decoder(list[tuple[bytes | None, bytes | None, int]])


def encode_records(records: tuple[Record, ...]) -> bytes:
    """Return `records` as MessagePack: the payload of a batch."""
    return _encoder.encode(records)


def decode_records(payload: bytes) -> tuple[Record, ...]:
    """Return the records of a batch's payload.

    Raises: msgspec.MsgspecError if the payload is no array of records.
    """
    return _decoder.decode(payload)


def decode_fields(payload: bytes) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return (key, value, timestamp) of each record of a batch's payload.

    This function is faster than `decode_records`. A coordinator that loads a partition uses it,
    because it may read millions of records then.
    Raises: msgspec.MsgspecError if the payload is no array of records.
    """
    return _fields_decoder.decode(payload)


def payload_of(batch: RecordBatch, codecs: Codecs) -> bytes:
    """Return the bytes of a batch's records, uncompressed.

    Raises: ValueError if the bytes cannot be decompressed.
    """
    if not batch.compression:
        return batch.records
    return codecs.decompress(batch.compression, batch.records)


def records_of(batch: RecordBatch, codecs: Codecs = NO_CODECS) -> list[tuple[int, Record]]:
    """Return the records of a batch, each with its offset. The batch may be of either kind.

    Raises: msgspec.MsgspecError if the payload is no array of records; ValueError if the payload
        cannot be decompressed, is not in Kafka's format, or has another number of records than
        the header or `cleaned` says.
    """
    payload = payload_of(batch, codecs)
    if batch.kafka is not None:
        base_offset = batch.base_offset
        return [
            (base_offset + found.offset_delta, Record(found.key, found.value, timestamp_ms))
            for found, timestamp_ms in kafka_records_of(batch, batch.kafka, payload)
        ]
    records = decode_records(payload)
    # Because of `strict`, a ValueError is raised if there are not as many offsets as records.
    deltas = range(len(records)) if batch.cleaned is None else batch.cleaned.offset_deltas
    return [
        (batch.base_offset + delta, record) for delta, record in zip(deltas, records, strict=True)
    ]


def fields_of(
    batch: RecordBatch, codecs: Codecs = NO_CODECS
) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return (key, value, timestamp) of each record of a batch of either kind, without offsets.

    Raises: as `records_of`.
    """
    payload = payload_of(batch, codecs)
    if batch.kafka is None:
        return decode_fields(payload)
    return [
        (found.key, found.value, timestamp_ms)
        for found, timestamp_ms in kafka_records_of(batch, batch.kafka, payload)
    ]


def kafka_records_of(
    batch: RecordBatch, header: KafkaHeader, payload: bytes
) -> list[tuple[KafkaRecord, int]]:
    """Return the records in the uncompressed payload of a batch in Kafka's format.

    Each record comes with its timestamp. If the batch has LogAppendTime, this is the max timestamp
    of the batch.
    Raises: ValueError if the payload does not have the records that the header counts.
    """
    found = parse_records(payload, header.record_count)
    if header.attributes & LOG_APPEND_TIME:
        return [(record, batch.max_timestamp_ms) for record in found]
    base_ms = header.base_timestamp_ms
    return [(record, base_ms + record.timestamp_delta_ms) for record in found]
