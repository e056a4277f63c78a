"""Control records: the markers that end transactions in a log.

A control record is written by a broker, not by a producer, and each control record is in a batch of
its own. The key of a marker says whether the producer's transaction is committed or aborted.

Source: Kafka `ControlRecordType`, `EndTransactionMarker`.
"""

import struct
from dataclasses import dataclass

from protocol.records.batch import Record, RecordBatch, fields_of

_KEY = struct.Struct(">hh")
"""Layout of the key: version, type (abort or commit)."""
_VALUE = struct.Struct(">hi")
"""Layout of the value: version, coordinator epoch."""
_VERSION = 0
_ABORT = 0
_COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """End of a transaction in one partition.

    `coordinator_epoch` identifies the coordinator of the transaction. The coordinator is the leader
    of a partition of `__transaction_state`, and the epoch is this partition's leader epoch. Each
    new coordinator has a higher epoch. Logs refuse the markers of an earlier coordinator.
    """

    is_commit: bool
    coordinator_epoch: int


def encode_marker(marker: EndTransactionMarker, timestamp_ms: int) -> Record:
    """Return the record of a marker."""
    kind = _COMMIT if marker.is_commit else _ABORT
    return Record(
        _KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, marker.coordinator_epoch), timestamp_ms
    )


def decode_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """Return the marker of a control batch.

    The result is None if the batch has another kind of control record, or no record.
    Raises: ValueError if the record is too short for a marker.
    """
    records = fields_of(batch)  # without codecs, because a control batch is never compressed
    if not records:
        return None  # a compaction has removed the marker and kept the empty batch
    key, value, _ = records[0]
    try:
        # A missing key or value is too short for its layout: unpack_from raises struct.error.
        _version, kind = _KEY.unpack_from(key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _version, coordinator_epoch = _VALUE.unpack_from(value or b"")
    except struct.error as error:
        raise ValueError(f"control batch at offset {batch.base_offset}: {error}") from error
    return EndTransactionMarker(is_commit=kind == _COMMIT, coordinator_epoch=coordinator_epoch)
