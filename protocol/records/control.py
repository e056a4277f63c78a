"""Control records: the markers that end transactions in a log.

A control batch holds one record, whose key says what kind of end it is. Source: Kafka
`ControlRecordType`, `EndTransactionMarker`.
"""

import struct
from dataclasses import dataclass

from protocol.records.batch import Record, RecordBatch, decode_records

_KEY = struct.Struct(">hh")
"""Version, type."""
_VALUE = struct.Struct(">hi")
"""Version, coordinator epoch."""
_VERSION = 0
_ABORT = 0
_COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """A transaction's end; `coordinator_epoch` is that of the coordinator which decided it."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(marker: EndTransactionMarker, timestamp_ms: int) -> Record:
    """Return the record of a marker."""
    kind = _COMMIT if marker.is_commit else _ABORT
    return Record(
        _KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, marker.coordinator_epoch), timestamp_ms
    )


def decode_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """Return the marker of a control batch; None if it holds no record, or another control record.

    Raises: ValueError for bytes that are no control record.
    """
    records = decode_records(batch.records)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    try:
        _version, kind = _KEY.unpack_from(key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _version, coordinator_epoch = _VALUE.unpack_from(value or b"")
    except struct.error as error:
        raise ValueError(f"control batch at offset {batch.base_offset}: {error}") from error
    return EndTransactionMarker(is_commit=kind == _COMMIT, coordinator_epoch=coordinator_epoch)
