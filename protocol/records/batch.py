"""Records and record batches, in logs and in the messages Produce and Fetch.

Here are the structs and their MessagePack form. `partition_log.batches` computes offsets, epochs
and CRCs. The CRC covers every field but `base_offset` and `partition_leader_epoch`, as in Kafka, so
that a leader can set these two.
"""

import msgspec

from protocol.compression import NO_CODECS, Codecs


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record. `value` None is a tombstone; `timestamp_ms` is CreateTime since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1


class Cleaned(msgspec.Struct, frozen=True, array_like=True):
    """The traces of a compaction in a batch, some of whose records were removed.

    Shape: `offset_deltas` has the distance from the base offset for each record left, in order.
    Units: `delete_horizon_ms` (since the epoch) is the time after which a cleaning removes the
    batch's tombstones or marker; -1 if the batch has neither (KIP-534).
    """

    offset_deltas: tuple[int, ...]
    delete_horizon_ms: int = -1


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A batch: contiguous offsets `base_offset .. base_offset + last_offset_delta`.

    Invariant: `records` is the MessagePack form of one Record for each offset (for each offset left
    if the batch was `cleaned`), compressed if `compression`, a CompressionType, is not 0.
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
        if self.cleaned is not None:
            return len(self.cleaned.offset_deltas)
        return self.last_offset_delta + 1

    @property
    def size_in_bytes(self) -> int:
        """Size of the batch in fetch limits: payload plus the 61 bytes of Kafka's batch header."""
        return 61 + len(self.records)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Record, ...])
_fields_decoder = msgspec.msgpack.Decoder(list[tuple[bytes | None, bytes | None, int]])


def encode_records(records: tuple[Record, ...]) -> bytes:
    """Return the MessagePack form of `records`, a batch's payload."""
    return _encoder.encode(records)


def decode_records(payload: bytes) -> tuple[Record, ...]:
    """Return the records of a batch's payload.

    Raises: msgspec.MsgspecError if the payload is no array of records.
    """
    return _decoder.decode(payload)


def decode_fields(payload: bytes) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return (key, value, timestamp) of each record of a batch's payload.

    Faster than `decode_records`, for loads that read millions of records.
    Raises: msgspec.MsgspecError if the payload is no array of records.
    """
    return _fields_decoder.decode(payload)


def payload_of(batch: RecordBatch, codecs: Codecs) -> bytes:
    """Return the uncompressed payload of a batch, for `decode_records`.

    Raises: ValueError if it cannot be decompressed.
    """
    if not batch.compression:
        return batch.records
    return codecs.decompress(batch.compression, batch.records)


def records_of(batch: RecordBatch, codecs: Codecs = NO_CODECS) -> list[tuple[int, Record]]:
    """Return the records of a batch, each with its offset.

    Raises: msgspec.MsgspecError if the payload is no array of records; ValueError if it cannot be
        decompressed, or a cleaning left another number of them than the header says.
    """
    records = decode_records(payload_of(batch, codecs))
    deltas = range(len(records)) if batch.cleaned is None else batch.cleaned.offset_deltas
    return [
        (batch.base_offset + delta, record) for delta, record in zip(deltas, records, strict=True)
    ]
