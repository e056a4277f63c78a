"""Kafka's encoding of records: two readers agree, and another library reads what is written.

A leader must not append records that a consumer could not read. The leader could decode the records
with `parse_records`, but this takes long. So it uses `scan_records`, which decodes no record. A
scan returns only what the leader needs: the largest timestamp, and the indexes of the records
without a key. `scan_records` must refuse exactly the bytes that `parse_records` refuses.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from cluster.storage.compression import CODECS
from partition_log.batches import build_batch
from protocol.records.batch import Record, payload_of
from protocol.records.kafka_format import decode_batches, encode_batch
from protocol.records.kafka_records import (
    encode_kafka_records,
    parse_records,
    scan_records,
    write_varint,
)
from tests.support.recorded_batches import RecordedBatch, recorded_batches

RECORDED = recorded_batches()
# Lengths are zigzag varints, which take one byte or more. 8,192 is the first length that needs
# three bytes. A whole record with a value of 8,180 bytes also has about this length.
BYTES = st.none() | st.binary(max_size=70) | st.sampled_from([b"x" * 8_180, b"y" * 8_192])


def result_of_scan(payload: bytes, count: int) -> object:
    """Return the result of a scan, or None for an error.

    `count` is the number of records that the header of the batch states.
    """
    try:
        return scan_records(payload, count)
    except ValueError:
        return None


def expected_scan(payload: bytes, count: int) -> object:
    """Return the result that a scan should have, computed with `parse_records`."""
    try:
        records = parse_records(payload, count)
    except ValueError:
        return None
    # The scan also requires that the offsets are 0, 1, 2, and so on.
    if [record.offset_delta for record in records] != list(range(count)):
        return None
    largest_timestamp = max((record.timestamp_delta_ms for record in records), default=0)
    without_key = tuple(index for index, record in enumerate(records) if record.key is None)
    return largest_timestamp, without_key


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_scan_equals_a_full_reading(recorded: RecordedBatch) -> None:
    """The batches were encoded by the library kafka-python.

    If the header states a wrong number of records, the scan fails.
    """
    (batch,) = decode_batches(recorded.data)
    payload, count = payload_of(batch, CODECS), batch.record_count
    expected = expected_scan(payload, count)
    assert expected is not None
    assert result_of_scan(payload, count) == expected
    for wrong_count in (0, count - 1, count + 1):
        assert result_of_scan(payload, wrong_count) is None


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), BYTES, BYTES), max_size=9), st.data())
def test_scan_refuses_what_a_full_reading_refuses(
    records: list[tuple[int, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    """First the bytes are valid. Then they are damaged at random places, and perhaps cut off."""
    payload = bytearray(
        encode_kafka_records(
            (index, delta, key, value) for index, (delta, key, value) in enumerate(records)
        )
    )
    count = len(records)
    whole = bytes(payload)
    expected = expected_scan(whole, count)
    assert expected is not None
    assert result_of_scan(whole, count) == expected

    if not payload:
        return  # there is no byte to damage

    for index in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=3)):
        payload[index] = data.draw(st.integers(0, 255))
    remaining_bytes = data.draw(st.integers(0, len(payload)))
    damaged = bytes(payload)[:remaining_bytes]
    assert result_of_scan(damaged, count) == expected_scan(damaged, count)


@given(st.binary(max_size=60), st.integers(0, 4))
def test_both_readers_agree_on_any_bytes(payload: bytes, count: int) -> None:
    """A client may send any bytes."""
    assert result_of_scan(payload, count) == expected_scan(payload, count)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (63, b"\x7e"),
        (64, b"\x80\x01"),
        (-64, b"\x7f"),
        (-65, b"\x81\x01"),
        (2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        (-(2**63), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_numbers_are_zigzag_varints(number: int, encoded: bytes) -> None:
    """This is the encoding of sint32 and sint64 in Protocol Buffers (Kafka's ByteUtils).

    Zigzag maps the numbers 0, -1, 1, -2, ... to 0, 1, 2, 3, ... A varint has 7 bits of the number
    in each byte, and the eighth bit says that another byte follows.
    """
    assert write_varint(number) == encoded


@given(
    st.lists(st.builds(Record, BYTES, BYTES, st.integers(0, 2**42)), min_size=1, max_size=9).map(
        tuple
    ),
    st.sampled_from([0, 1]),  # no compression, and gzip
)
def test_kafka_python_reads_what_we_write(records: tuple[Record, ...], compression: int) -> None:
    """The library kafka-python shares no code with us."""
    base_offset, leader_epoch = 77, 3
    own = build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        codecs=CODECS,
    )
    theirs = MemoryRecords(encode_batch(own, CODECS))
    their_batch = theirs.next_batch()
    assert their_batch.validate_crc()
    assert their_batch.base_offset == base_offset
    assert their_batch.leader_epoch == leader_epoch
    assert their_batch.magic == 2  # the version of Kafka's format
    their_records = [
        (record.offset, record.key, record.value, record.timestamp) for record in their_batch
    ]
    assert their_records == [
        (base_offset + index, record.key, record.value, record.timestamp_ms)
        for index, record in enumerate(records)
    ]
    assert theirs.next_batch() is None
