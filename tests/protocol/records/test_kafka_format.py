"""Kafka's byte format of batches: the batches of another library are read and reproduced.

A batch is a group of records that are sent and stored together. Real Kafka clients send batches in
Kafka's format, and our log stores them as they were sent. Our own producers make batches in a
format of our own, in which the records are in MessagePack (a compact binary JSON). `encode_batch`
writes any batch in Kafka's format, and `decode_batches` reads it.

Most tests use RECORDED, batches that the library kafka-python has encoded. PLAIN has the bytes of a
recorded batch without compression. Some tests change single bytes of a batch. The bytes have this
meaning:

- 0 to 7: base offset; 8 to 11: length; 12 to 15: leader epoch;
- 16: magic (the version of the format); 17 to 20: CRC (a checksum); 21 and 22: attributes;
- 23 to 60: other fields; from 61 on: records.

The CRC covers the bytes from 21 on.
"""

import struct
from contextlib import suppress

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.storage.compression import CODECS
from partition_log.batches import build_batch, check_batch, cleaned_batch, place_batch
from protocol.compression import CompressionType
from protocol.errors import ErrorCode
from protocol.records.batch import LOG_APPEND_TIME, Cleaned, Record, RecordBatch, records_of
from protocol.records.control import EndTransactionMarker, decode_marker, encode_marker
from protocol.records.kafka_format import InvalidBatch, decode_batches, encode_batch
from tests.support.recorded_batches import RecordedBatch, recorded_batches

RECORDED = recorded_batches()
PLAIN = RECORDED[0].data
RECORDS = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.integers(-1, 2**42),  # timestamps: none, or up to the year 2109
    ),
    min_size=1,
    max_size=80,
).map(tuple)


def with_right_crc(data: bytes) -> bytes:
    """Return a batch whose bytes were changed, with the CRC that fits the changed bytes."""
    return data[:17] + struct.pack(">I", int(google_crc32c.value(data[21:]))) + data[21:]


def error_of_decoding(data: bytes) -> ErrorCode:
    """Return the error code with which `decode_batches` refuses these bytes."""
    with pytest.raises(InvalidBatch) as refused:
        decode_batches(data)
    return refused.value.error_code


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_recorded_batch_is_read_and_reproduced_byte_for_byte(
    recorded: RecordedBatch,
) -> None:
    """Some of the batches are compressed. Some have record headers or a producer id."""
    (batch,) = decode_batches(recorded.data)
    assert encode_batch(batch) == recorded.data
    assert check_batch(batch) is ErrorCode.NONE
    assert batch.size_in_bytes == len(recorded.data)
    assert batch.compression == recorded.compression
    assert batch.producer_id == recorded.producer_id
    assert batch.producer_epoch == recorded.producer_epoch
    assert batch.base_sequence == recorded.base_sequence
    assert batch.is_transactional == recorded.is_transactional
    assert not batch.is_control
    assert batch.record_count == len(recorded.records)
    assert records_of(batch, CODECS) == [
        (offset, Record(*record)) for offset, record in enumerate(recorded.records)
    ]
    assert batch.max_timestamp_ms == max(time for _, _, time in recorded.records)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_leader_changes_only_base_offset_and_leader_epoch(recorded: RecordedBatch) -> None:
    """A leader that appends a client's batch sets two fields, with `place_batch`.

    The CRC does not cover these two fields, so the CRC of the client remains valid.
    """
    (batch,) = decode_batches(recorded.data)
    base_offset, leader_epoch = 2**40, 9
    placed = encode_batch(place_batch(batch, base_offset=base_offset, leader_epoch=leader_epoch))
    assert placed[:8] == base_offset.to_bytes(8, "big")
    assert placed[8:12] == recorded.data[8:12]
    assert placed[12:16] == leader_epoch.to_bytes(4, "big")
    assert placed[16:] == recorded.data[16:]
    assert decode_batches(placed)[0].next_offset == base_offset + len(recorded.records)


def test_batches_are_read_up_to_a_truncated_one() -> None:
    """The last batch of a fetch response may be truncated. Kafka's clients skip it, too."""
    whole = b"".join(recorded.data for recorded in RECORDED)
    assert len(decode_batches(whole)) == len(RECORDED)
    all_but_the_first_byte = len(RECORDED[-1].data) - 1
    for missing_bytes in (1, 11, 17, 60, all_but_the_first_byte):
        truncated = whole[: len(whole) - missing_bytes]
        assert len(decode_batches(truncated)) == len(RECORDED) - 1
    assert decode_batches(b"") == ()


@given(RECORDS, st.integers(0, 4))
def test_own_batch_reads_the_same_in_kafkas_format(
    records: tuple[Record, ...], compression: int
) -> None:
    """A real Kafka consumer must be able to read the batches of our own producers.

    `compression` is Kafka's number for none, gzip, snappy, lz4 or zstd.
    """
    batch = place_batch(
        build_batch(records, compression=compression, codecs=CODECS, producer_id=5),
        base_offset=1_000,
        leader_epoch=3,
    )
    (read,) = decode_batches(encode_batch(batch, CODECS))
    assert records_of(read, CODECS) == records_of(batch, CODECS)
    assert read.base_offset == batch.base_offset
    assert read.last_offset == batch.last_offset
    assert read.partition_leader_epoch == 3
    assert read.compression == compression
    assert read.producer_id == 5
    assert read.max_timestamp_ms == batch.max_timestamp_ms
    assert encode_batch(read) == encode_batch(batch, CODECS)


def test_own_record_equals_the_one_that_an_independent_library_writes() -> None:
    """Our records have no headers, so there is only one way to encode them in Kafka's format.

    The test encodes the first record of a recorded batch, and compares the result with the recorded
    bytes.
    """
    (recorded,) = (batch for batch in RECORDED if batch.name == "nulls")
    own = build_batch((Record(*recorded.records[0]),))
    (read,) = decode_batches(encode_batch(own))
    # A record begins with its length, as a zigzag varint. In this encoding a small number n is the
    # single byte 2n.
    length = recorded.data[61] // 2
    assert read.records == recorded.data[61 : 61 + 1 + length]


def test_marker_is_encoded_as_a_control_batch() -> None:
    """A transaction marker, the record that ends a transaction, is alone in a control batch."""
    marker = EndTransactionMarker(is_commit=True, coordinator_epoch=4)
    batch = build_batch(
        (encode_marker(marker, timestamp_ms=77),),
        producer_id=9,
        producer_epoch=2,
        is_transactional=True,
        is_control=True,
    )
    (read,) = decode_batches(encode_batch(batch))
    assert read.is_control
    assert read.is_transactional
    assert read.producer_epoch == 2
    assert decode_marker(read) == marker
    ((_offset, record),) = records_of(read)
    version, commit = b"\0\0", b"\0\1"
    assert record.key == version + commit


def test_cleaned_batch_keeps_its_offsets() -> None:
    """Log cleaning removes records that newer records of the same key have replaced.

    The batch has the offsets 40 to 44. Only the second and the fourth record are left. These
    records keep their offsets, 41 and 43, and the last offset of the batch is still 44. The last
    offset stays even if no record is left.
    """
    records = tuple(Record(b"k%d" % number, b"v", number) for number in range(5))
    batch = place_batch(build_batch(records), base_offset=40, leader_epoch=1)
    cleaned = cleaned_batch(batch, Cleaned((1, 3)), [records[1], records[3]])
    (read,) = decode_batches(encode_batch(cleaned))
    assert records_of(read) == [(41, records[1]), (43, records[3])]
    assert read.last_offset == 44
    assert read.record_count == 2

    empty = cleaned_batch(batch, Cleaned(()), [])
    (read,) = decode_batches(encode_batch(empty))
    assert records_of(read) == []
    assert read.next_offset == 45


def test_log_append_time_is_the_time_of_each_record() -> None:
    """With the topic setting LogAppendTime the leader gives a batch the time of its append.

    The leader sets a bit in the attributes, and the max timestamp. Then the max timestamp is the
    time of each record.
    """
    (batch,) = decode_batches(PLAIN)
    assert batch.kafka is not None
    append_time_ms = 99
    changed = replace(
        batch,
        max_timestamp_ms=append_time_ms,
        kafka=replace(batch.kafka, attributes=batch.kafka.attributes | LOG_APPEND_TIME),
    )
    assert {record.timestamp_ms for _, record in records_of(changed)} == {append_time_ms}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(PLAIN[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE, id="a byte of a record"),
        pytest.param(
            PLAIN[:17] + b"\0" + PLAIN[18:], ErrorCode.CORRUPT_MESSAGE, id="a byte of the crc"
        ),
        pytest.param(PLAIN[:16] + b"\0" + PLAIN[17:], ErrorCode.INVALID_RECORD, id="magic 0"),
        pytest.param(PLAIN[:16] + b"\1" + PLAIN[17:], ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(PLAIN[:16] + b"\3" + PLAIN[17:], ErrorCode.CORRUPT_MESSAGE, id="magic 3"),
        pytest.param(
            PLAIN[:8] + struct.pack(">i", 13) + PLAIN[12:],
            ErrorCode.CORRUPT_MESSAGE,
            id="length 13",
        ),
        pytest.param(
            PLAIN[:8] + struct.pack(">i", -1) + PLAIN[12:],
            ErrorCode.CORRUPT_MESSAGE,
            id="length -1",
        ),
        pytest.param(
            PLAIN[:8] + struct.pack(">i", 20) + PLAIN[12:],
            ErrorCode.CORRUPT_MESSAGE,
            id="no header",
        ),
        pytest.param(
            with_right_crc(PLAIN[:21] + b"\0\5" + PLAIN[23:]),
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            id="codec 5",
        ),
    ],
)
def test_damaged_batch_is_refused_with_kafkas_error(data: bytes, error: ErrorCode) -> None:
    """Magic 0 and 1 are old formats of Kafka, which our brokers do not read.

    The field `length` counts the bytes after the field itself. The value must be at least 49, for
    the rest of the header.
    """
    assert error_of_decoding(data) is error


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(b"", id="no record"),
        pytest.param(b"\x0e\0\0\0\1\1", id="length 7, but 5 bytes"),
        pytest.param(b"\x0c\0\0\0\1\1\0\0", id="length 6, but 7 bytes"),
        pytest.param(b"\x7f\0\0\0\1\1\0", id="length -64"),
        pytest.param(b"\xff" * 9, id="no varint"),
        pytest.param(b"\1", id="length -1"),
    ],
)
def test_payload_that_contradicts_the_record_count_is_refused(records: bytes) -> None:
    """The header says that the batch has one record, but the bytes are not one record.

    A record begins with its length as a zigzag varint, in which an odd byte is a negative number.
    """
    only_header = PLAIN[:8] + struct.pack(">i", 49) + PLAIN[12:61]
    (batch,) = decode_batches(with_right_crc(only_header))
    assert batch.kafka is not None
    contradictory = replace(batch, records=records, kafka=replace(batch.kafka, record_count=1))
    # Each message names the part that cannot be read.
    with pytest.raises(ValueError, match=r"record|number|key"):
        records_of(contradictory)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_as_an_invalid_batch(data: bytes) -> None:
    """No other exception is raised, so the broker can answer a client that sends any bytes.

    If batches are read, they encode to the same bytes.
    """
    with suppress(InvalidBatch):
        for batch in decode_batches(data):
            assert encode_batch(batch) in data


@given(
    st.sampled_from(RECORDED),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    st.booleans(),
)
def test_any_damage_to_a_batch_is_an_invalid_batch_or_unreadable_records(
    recorded: RecordedBatch, damage: list[tuple[int, int]], crc_fits: bool
) -> None:
    """Damaged bytes raise a ValueError or nothing, even if the CRC fits them.

    The leader depends on this, because it reads the records before it appends them. InvalidBatch is
    a ValueError, and so is the error of unreadable records.
    """
    data = bytearray(recorded.data)
    for index, byte in damage:
        data[index % len(data)] = byte
    damaged = with_right_crc(bytes(data)) if crc_fits else bytes(data)
    with suppress(ValueError):
        for batch in decode_batches(damaged):
            assert len(records_of(batch, CODECS)) == batch.record_count


def test_own_batch_differs_from_the_same_batch_in_kafkas_format() -> None:
    """The records are equal, but the batches are not: a log stores a batch as it was sent."""
    own = build_batch((Record(b"k", b"v", 5),))
    (read,) = decode_batches(encode_batch(own))
    assert isinstance(read, RecordBatch)
    assert read != own
    assert records_of(read) == records_of(own)
    assert CompressionType(read.compression) is CompressionType.NONE
