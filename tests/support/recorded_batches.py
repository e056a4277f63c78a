"""Batches that kafka-python has encoded. With them, tests compare our code with independent code.

The batches are in a file, which the tests read. To write the file anew, run this module with a
Python in which kafka-python and the packages crc32c, lz4, python-snappy and zstandard are
installed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[2] / "tests/protocol/records/kafka_python_batches.json"
"""The file with the batches."""

_Records = list[tuple[bytes | None, bytes | None, int]]
"""Key, value and timestamp of each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """The content of a batch, and the bytes that kafka-python has made of this content."""

    name: str
    # The number of the codec, from 0 (none) to 4 (zstd).
    compression: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    records: _Records
    # The encoded batch.
    data: bytes


def recorded_batches() -> list[RecordedBatch]:
    """Return the recorded batches."""
    return [
        RecordedBatch(
            name=batch["name"],
            compression=batch["compression"],
            producer_id=batch["producer_id"],
            producer_epoch=batch["producer_epoch"],
            base_sequence=batch["base_sequence"],
            is_transactional=batch["is_transactional"],
            records=[(_bytes(key), _bytes(value), time) for key, value, time in batch["records"]],
            data=bytes.fromhex(batch["data"]),
        )
        for batch in json.loads(RECORDED.read_text())
    ]


def _bytes(text: str | None) -> bytes | None:
    """Return the bytes of a key or value, which the file has as hexadecimal digits or as null."""
    return None if text is None else bytes.fromhex(text)


def _record() -> None:
    """Encode the batches with kafka-python, and write the file."""
    from kafka.record.default_records import (
        DefaultRecordBatchBuilder,
    )

    ordinary: _Records = [
        (b"key-%d" % number, (b"value %d" % number) * 9, 1_700_000_000_000 + 7 * number)
        for number in range(6)
    ]
    # Name, number of the codec, producer id, epoch, base sequence, transactional, records. Producer
    # id, epoch and base sequence are -1 if the producer is not idempotent.
    kinds: list[tuple[str, int, int, int, int, bool, _Records]]
    kinds = [
        ("plain", 0, -1, -1, -1, False, ordinary),
        ("gzip", 1, -1, -1, -1, False, ordinary),
        ("snappy", 2, -1, -1, -1, False, ordinary),
        ("lz4", 3, -1, -1, -1, False, ordinary),
        ("zstd", 4, -1, -1, -1, False, ordinary),
        # The sequence numbers reach their maximum, 2**31 - 1, and go on with 0.
        ("idempotent", 0, 4000, 3, 2**31 - 2, False, ordinary[:4]),
        ("transactional", 4, 2**40, 7, 0, True, ordinary[:3]),
        ("times back and forth", 0, -1, -1, -1, False, [(b"a", b"", 9), (b"a", b"1", 2**41)] * 2),
        ("nulls", 0, -1, -1, -1, False, [(None, b"v", 5), (b"k", None, 5), (None, None, 5)]),
        # Lengths and offsets are varints, which need two bytes from 64 on. "long" has lengths of
        # two bytes, and "many" has offsets of two bytes.
        ("long", 0, -1, -1, -1, False, [(b"k" * 70, b"v" * 900, 1), (b"", b"v" * 64, 0)]),
        (
            "many",
            0,
            -1,
            -1,
            -1,
            False,
            [(None, b"%d" % number, 50 * number) for number in range(140)],
        ),
    ]
    recorded = []
    for name, codec, producer_id, epoch, sequence, transactional, records in kinds:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=transactional,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            # The largest size of a batch in bytes. No batch here becomes so large.
            batch_size=10**6,
        )
        for offset, (key, value, timestamp) in enumerate(records):
            # One of three records has headers.
            headers = [("h", b"x"), ("trace", None)] if offset % 3 == 1 else []
            builder.append(offset, timestamp, key, value, headers)
        recorded.append(
            {
                "name": name,
                "compression": codec,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "is_transactional": transactional,
                "records": [
                    (
                        None if key is None else key.hex(),
                        None if value is None else value.hex(),
                        timestamp,
                    )
                    for key, value, timestamp in records
                ],
                "data": bytes(builder.build()).hex(),
            }
        )
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    _record()
