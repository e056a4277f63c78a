"""Batches of records: the fields that the CRC (checksum) covers, and the errors of broken batches.

Simulated producers write the records of a batch as an array in MessagePack, a compact binary form
of JSON. The batches of real Kafka clients, which are in Kafka's format, are tested elsewhere.
`records("a", "b")` returns two records, with the values "a" and "b".
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
    """A batch has fields for both values, so that the log need not decode the records.

    The log adds the number of records to an offset to find the offset of the next batch. It reads
    the largest timestamp when a client asks for the first record at or after a time.
    """
    batch = build_batch((Record(b"a", b"1", 5), Record(b"b", None, 9), Record(b"c", b"3", 7)))
    assert batch.record_count == 3
    assert batch.max_timestamp_ms == 9
    assert [record.key for record in decode_records(batch.records)] == [b"a", b"b", b"c"]
    assert check_batch(batch) is ErrorCode.NONE


def test_build_batch_without_records_raises_an_exception() -> None:
    """A batch without records would have no offset."""
    with pytest.raises(SimulationError):
        build_batch(())


def test_place_batch_keeps_the_crc_valid() -> None:
    """The leader writes the offset and the leader epoch into a producer's batch.

    So the producer's CRC does not cover these two fields.
    """
    placed = place_batch(build_batch(records("a")), base_offset=41, leader_epoch=6)
    assert (placed.base_offset, placed.partition_leader_epoch) == (41, 6)
    assert check_batch(placed) is ErrorCode.NONE


def test_batch_through_the_codec_keeps_a_valid_crc() -> None:
    """A batch is encoded when it is sent to another process. Its CRC must be valid there, too."""
    # The producer id needs more than four bytes.
    batch = build_batch(records("a", "b"), producer_id=2**40, is_transactional=True)
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(batch), type=RecordBatch)
    assert decoded == batch
    assert check_batch(decoded) is ErrorCode.NONE


# In all these fields the batch of the test has other values.
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
    """As in Kafka's DefaultRecordBatch, the CRC covers all fields from `attributes` to the end."""
    batch = build_batch(records("a"))
    broken = replace(batch, **change)
    assert check_batch(broken) is ErrorCode.CORRUPT_MESSAGE


def test_check_batch_finds_a_wrong_record_count() -> None:
    """A wrong count makes each later offset of the log wrong, even if the CRC is valid."""
    two_records = build_batch(records("a", "b"))
    # By its fields this batch has one record, but its payload has two records.
    wrong_count = replace(build_batch(records("a")), records=two_records.records)
    # Give the batch with the wrong count a valid CRC.
    sealed = replace(wrong_count, crc=batch_crc(wrong_count))
    assert check_batch(sealed) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_payload_record_count_reads_every_array_header(count: int) -> None:
    """MessagePack has three array headers: up to 15 elements, up to 65,535 elements, and more."""
    assert payload_record_count(encode_records(records("v") * count)) == count


@pytest.mark.parametrize("payload", [b"", b"\xa1x", b"\xc0"], ids=["empty", "string x", "null"])
def test_payload_record_count_of_bytes_without_array_is_minus_one(payload: bytes) -> None:
    """Records are encoded as an array. Other bytes are no records, so they have no count."""
    assert payload_record_count(payload) == -1
