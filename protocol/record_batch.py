"""Records and batches as they stand in a log and travel in Produce and Fetch.

Owns the shapes and their MessagePack form. Offsets, epochs and CRCs are given by
`partition_log.batches`; the CRC covers everything but `base_offset` and
`partition_leader_epoch`, as in Kafka, so that a leader may set those two.
"""

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record. `value` None is a tombstone; `timestamp_ms` is CreateTime since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A batch: contiguous offsets `base_offset .. base_offset + last_offset_delta`.

    Invariant: `records` is the MessagePack form of `last_offset_delta + 1` Records.
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
        return self.last_offset_delta + 1

    @property
    def size_in_bytes(self) -> int:
        """Bytes that the batch counts for in fetch limits: payload plus Kafka's 61-byte header."""
        return 61 + len(self.records)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Record, ...])


def encode_records(records: tuple[Record, ...]) -> bytes:
    """Return the MessagePack form of `records`, a batch's payload."""
    return _encoder.encode(records)


def decode_records(payload: bytes) -> tuple[Record, ...]:
    """Return the records of a batch's payload.

    Raises: msgspec.MsgspecError if the payload is no array of records.
    """
    return _decoder.decode(payload)
