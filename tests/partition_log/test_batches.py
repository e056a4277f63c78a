"""Batches: the fields that the CRC covers, and the errors of broken batches.

Batches of our own producers have their records in a MessagePack array. Batches of real clients have
them in Kafka's format, and are not tested here. `records("a", "b")` are records with these values.
"""

import msgspec
import pytest
from msgspec.structs import replace

from partition_log.batches import (
    batch_crc,
    build_batch,
    check_batch,
    payload_record_count,
    place_batch,
)
from protocol.errors import ErrorCode, SimulationError
from protocol.records.batch import Record, RecordBatch, decode_records, encode_records
from tests.support.builders.partition_logs import records


def test_build_batch_counts_records_and_takes_the_largest_timestamp() -> None:
    """Offsets follow from the count, lookups by time from the largest timestamp."""
    batch = build_batch((Record(b"a", b"1", 5), Record(b"b", None, 9), Record(b"c", b"3", 7)))
    assert batch.record_count == 3
    assert batch.max_timestamp_ms == 9
    assert [record.key for record in decode_records(batch.records)] == [b"a", b"b", b"c"]
    assert check_batch(batch) is ErrorCode.NONE


def test_build_batch_without_records_is_misuse() -> None:
    """A batch without records has no offsets."""
    with pytest.raises(SimulationError):
        build_batch(())


def test_place_batch_keeps_the_crc_right() -> None:
    """The leader sets offset and epoch of a producer's batch, which the CRC does not cover."""
    placed = place_batch(build_batch(records("a")), base_offset=41, leader_epoch=6)
    assert (placed.base_offset, placed.partition_leader_epoch) == (41, 6)
    assert check_batch(placed) is ErrorCode.NONE


def test_batch_through_the_codec_keeps_a_valid_crc() -> None:
    """Between processes, as on Ray, a batch is encoded; its CRC must be valid on the other side."""
    batch = build_batch(records("a", "b"), producer_id=2**40, is_transactional=True)
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(batch), type=RecordBatch)
    assert decoded == batch
    assert check_batch(decoded) is ErrorCode.NONE


@pytest.mark.parametrize(
    "change",
    [
        {"records": encode_records(records("x"))},
        {"max_timestamp_ms": 8},
        {"producer_id": 1},
        {"producer_epoch": 1},
        {"is_transactional": True},
        {"is_control": True},
        {"crc": 1},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"producer_id": 2**63},  # too large for the 8 bytes of the field
    ],
    ids=str,
)
def test_check_batch_finds_a_change_of_any_field_that_the_crc_covers(
    change: dict[str, object],
) -> None:
    """Source: Kafka DefaultRecordBatch: the CRC covers attributes to the end of the batch."""
    batch = build_batch(records("a"))
    broken = replace(batch, **change)
    assert check_batch(broken) is ErrorCode.CORRUPT_MESSAGE


def test_check_batch_finds_a_wrong_record_count() -> None:
    """A valid CRC over a wrong count would shift every later offset."""
    two_records = build_batch(records("a", "b"))
    wrong_count = replace(build_batch(records("a")), records=two_records.records)
    sealed = replace(wrong_count, crc=batch_crc(wrong_count))
    assert check_batch(sealed) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_payload_record_count_reads_every_array_header(count: int) -> None:
    """MessagePack has three array headers: up to 15 elements, up to 65,535, and more."""
    assert payload_record_count(encode_records(records("v") * count)) == count


@pytest.mark.parametrize("payload", [b"", b"\xa1x", b"\xc0"])
def test_payload_record_count_of_bytes_without_array_is_minus_one(payload: bytes) -> None:
    """Bytes without an array header are no records: none, a string, and nil."""
    assert payload_record_count(payload) == -1
