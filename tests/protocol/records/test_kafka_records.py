"""Kafka's encoding of records: two readers agree, and another library reads what is written.

`parse_records` decodes each record. `scan_records` is the faster check of the leader (the broker
that stores a partition's records first). The scan returns the largest timestamp and the indexes of
the records without a key, and it refuses what the other reader refuses.
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
# 8,192 is the first length whose zigzag varint (an integer of variable size) needs three bytes. A
# record with a value of 8,180 bytes has about this length, too.
BYTES = st.none() | st.binary(max_size=70) | st.sampled_from([b"x" * 8_180, b"y" * 8_192])


def scanned(payload: bytes, count: int) -> object:
    """Return the result of a scan, or None for an error.

    `count` is the number of records that the header of the batch states.
    """
    try:
        return scan_records(payload, count)
    except ValueError:
        return None


def expected_scan(payload: bytes, count: int) -> object:
    """Return the result of the slower reader. The scan must give the same."""
    try:
        records = parse_records(payload, count)
    except ValueError:
        return None
    # The scan also requires that the offsets are 0, 1, 2, and so on.
    if [record.offset_delta for record in records] != list(range(count)):
        return None
    return (
        max((record.timestamp_delta_ms for record in records), default=0),
        tuple(index for index, record in enumerate(records) if record.key is None),
    )


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_scan_equals_a_full_reading(recorded: RecordedBatch) -> None:
    """Both readers give the same result, and both fail if the number of records is wrong.

    The library kafka-python encoded the recorded batches.
    """
    (batch,) = decode_batches(recorded.data)
    payload, count = payload_of(batch, CODECS), batch.record_count
    expected = expected_scan(payload, count)
    assert expected is not None
    assert scanned(payload, count) == expected
    for wrong_count in (0, count - 1, count + 1):
        assert scanned(payload, wrong_count) is None


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), BYTES, BYTES), max_size=9), st.data())
def test_scan_refuses_what_a_full_reading_refuses(
    records: list[tuple[int, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    """The bytes are valid, or they are damaged at random places."""
    payload = bytearray(
        encode_kafka_records(
            (index, delta, key, value) for index, (delta, key, value) in enumerate(records)
        )
    )
    count = len(records)
    whole = bytes(payload)
    expected = expected_scan(whole, count)
    assert expected is not None
    assert scanned(whole, count) == expected

    # Without records there is no byte to damage.
    if not payload:
        return

    for index in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=3)):
        payload[index] = data.draw(st.integers(0, 255))
    damaged = bytes(payload)[: data.draw(st.integers(0, len(payload)))]
    assert scanned(damaged, count) == expected_scan(damaged, count)


@given(st.binary(max_size=60), st.integers(0, 4))
def test_both_readers_agree_on_any_bytes(payload: bytes, count: int) -> None:
    """A client may send any bytes. The scan must not accept bytes that a consumer cannot read."""
    assert scanned(payload, count) == expected_scan(payload, count)


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
    """A zigzag varint is Protocol Buffers' encoding of sint32 and sint64 (Kafka's ByteUtils)."""
    assert write_varint(number) == encoded


@given(
    st.lists(st.builds(Record, BYTES, BYTES, st.integers(0, 2**42)), min_size=1, max_size=9).map(
        tuple
    ),
    st.sampled_from([0, 1]),  # no compression, and gzip
)
def test_kafka_python_reads_what_the_lab_writes(
    records: tuple[Record, ...], compression: int
) -> None:
    """The library kafka-python shares no code with the lab (this project)."""
    own = build_batch(
        records, base_offset=77, leader_epoch=3, compression=compression, codecs=CODECS
    )
    read = MemoryRecords(encode_batch(own, CODECS))
    batch = read.next_batch()
    assert batch.validate_crc()
    assert (batch.base_offset, batch.leader_epoch, batch.magic) == (77, 3, 2)
    read_records = [(record.offset, record.key, record.value, record.timestamp) for record in batch]
    assert read_records == [
        (77 + index, record.key, record.value, record.timestamp_ms)
        for index, record in enumerate(records)
    ]
    assert read.next_batch() is None
