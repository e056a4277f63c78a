"""Records and batches as they stand in a log and travel in Produce and Fetch.

Owns the shapes and their MessagePack form. Offsets, epochs and CRCs are given by
`partition_log.batches`; the CRC covers everything but `base_offset` and
`partition_leader_epoch`, as in Kafka, so that a leader may set those two.
"""

import msgspec

from protocol.compression import NO_CODECS, Codecs


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record. `value` None is a tombstone; `timestamp_ms` is CreateTime since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1


class Cleaned(msgspec.Struct, frozen=True, array_like=True):
    """What the log cleaner did to a batch: some of its offsets have no record any more.

    Shape: `offset_deltas` are those that have one, from the base offset, in order.
    Units: `delete_horizon_ms` is the time, since the epoch, from which on a cleaning drops the
    batch's tombstones, or its marker; -1 where there is none of either (KIP-534).
    """

    offset_deltas: tuple[int, ...]
    delete_horizon_ms: int = -1


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A batch: contiguous offsets `base_offset .. base_offset + last_offset_delta`.

    Invariant: `records` is the MessagePack form of one Record for each offset, or, of a batch that
    was `cleaned`, for each offset that is left. With a `compression`, one of CompressionType, it is
    that form compressed.
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
        """Bytes that the batch counts for in fetch limits: payload plus Kafka's 61-byte header."""
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
    """Return key, value and timestamp of a batch's records: cheaper to go through than Records.

    Raises: msgspec.MsgspecError if the payload is no array of records.
    """
    return _fields_decoder.decode(payload)


def payload_of(batch: RecordBatch, codecs: Codecs) -> bytes:
    """Return the payload of a batch as `decode_records` reads it.

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
