"""The format of a log file, which is read up to the first damage.

A log file is a sequence of frames. Each contains a batch of records:

    4 bytes  the length of the payload
    4 bytes  a CRC (checksum) of the length and the payload
    n bytes  the payload, which is the batch

If the process was killed during a write, the file ends with a part of a frame, a torn tail.
`parse_log` reads all frames before the first one that is not valid. Its result has

- `batches`: the batches of these frames;
- `positions`: the byte at which each of them begins, and the byte at which the last one ends. A
  file with two frames of 100 and 50 bytes has [0, 100, 150];
- `end`: the last of these positions.
"""

import struct

import google_crc32c
import msgspec
import pytest
from msgspec.structs import replace

from cluster.storage.log_file import encode_frame, parse_log
from protocol.records.batch import RecordBatch
from tests.support.builders.client_batches import client_batch
from tests.support.builders.partition_logs import batch

FIRST = batch("a", "b", base_offset=0)
SECOND = batch("c", base_offset=2)
THIRD = batch("d", base_offset=3)
FRAMES = encode_frame(FIRST) + encode_frame(SECOND)
"""A file with the first two batches."""


def test_frames_are_read_as_they_were_written() -> None:
    """A batch is read with all its fields, including its own CRC and its epochs.

    `end_offset` is the log end offset after a number of batches. The first batch has two records,
    and the second has one.
    """
    log = parse_log(FRAMES)
    assert log.batches == [FIRST, SECOND]
    assert log.positions == [0, len(encode_frame(FIRST)), len(FRAMES)]
    assert log.end_offset(0) == 0
    assert log.end_offset(1) == 2
    assert log.end_offset(2) == 3


def test_log_that_is_cut_at_any_byte_keeps_the_batches_before_it() -> None:
    """A kill may stop a write at any byte. The batches remain whose frames are complete."""
    for cut in range(len(FRAMES)):
        log = parse_log(FRAMES[:cut])
        first_is_whole = cut >= len(encode_frame(FIRST))
        assert log.batches == ([FIRST] if first_is_whole else [])
        assert log.end <= cut


@pytest.mark.parametrize("position", range(len(encode_frame(SECOND))))
def test_flipped_bit_anywhere_ends_the_log_before_its_batch(position: int) -> None:
    """The CRC protects every byte of a frame, including the length.

    The test flips a bit of the second of three frames, so that only the first batch is read.
    """
    content = bytearray(FRAMES + encode_frame(THIRD))
    content[len(encode_frame(FIRST)) + position] ^= 0b100
    assert parse_log(bytes(content)).batches == [FIRST]


# The header of a frame has 8 bytes, and a page of the disk 4096.
@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 4096])
def test_zeros_behind_the_last_batch_are_no_batch(zeros: int) -> None:
    """After a power loss a file may have its full size, but zeros in place of its last data.

    Eight zeros must not be a frame with an empty payload. They would be such a frame if the CRC did
    not cover the length, because the CRC of no bytes is 0.
    """
    log = parse_log(FRAMES + bytes(zeros))
    assert log.batches == [FIRST, SECOND]
    assert log.end == len(FRAMES)


def test_batch_behind_zeros_is_not_read() -> None:
    """If the middle of a file is lost, the log ends where the zeros begin."""
    zeros = bytes(64)
    assert parse_log(encode_frame(FIRST) + zeros + encode_frame(SECOND)).batches == [FIRST]


@pytest.mark.parametrize(
    "old_batch",
    [
        batch("x", base_offset=2),
        batch("x", base_offset=0),
    ],
    ids=["again", "from the beginning"],
)
def test_batch_that_begins_before_the_last_one_ends_is_not_read(
    old_batch: RecordBatch,
) -> None:
    """Behind the end of the log there may be a batch of an older, longer log in the same file.

    Its CRC is valid, but its offsets are not those after the last batch: here the log ends at
    offset 3, and the old batch begins at 2 or at 0. So it cannot belong to the log.
    """
    log = parse_log(FRAMES + encode_frame(old_batch) + encode_frame(THIRD))
    assert log.batches == [FIRST, SECOND]
    assert log.end == len(FRAMES)


def test_batch_behind_a_hole_is_read() -> None:
    """A batch may begin at a higher offset than that at which the last one ends.

    The log cleaner has then removed the batches between them, in this log or in the leader's log
    from which it was copied. The bytes in the file have no gap.
    """
    after_hole = batch("x", base_offset=9)
    assert parse_log(FRAMES + encode_frame(after_hole)).batches == [FIRST, SECOND, after_hole]


def test_length_that_reaches_beyond_the_file_is_a_torn_tail() -> None:
    """The bytes behind the last frame begin with the length 0xffffffff here."""
    assert parse_log(FRAMES + b"\xff" * 12).batches == [FIRST, SECOND]


def test_batch_count_at_a_position_has_whole_batches_only() -> None:
    """`batch_count_at(position)` returns the number of batches that end at this byte or before it.

    These are the batches that are safely on the disk if the file is flushed up to the position.
    The position may be in the middle of a batch.
    """
    log = parse_log(FRAMES)
    end_of_first = len(encode_frame(FIRST))
    assert log.batch_count_at(0) == 0
    assert log.batch_count_at(end_of_first - 1) == 0
    assert log.batch_count_at(end_of_first) == 1
    assert log.batch_count_at(end_of_first + 1) == 1
    assert log.batch_count_at(len(FRAMES)) == 2
    assert log.batch_count_at(len(FRAMES) + 9) == 2


@pytest.mark.parametrize("field_count", [5, 11, 12])
def test_frame_of_an_earlier_version_is_read_with_the_defaults(field_count: int) -> None:
    """Files outlive a version of this program. Newer fields of a batch come last, with defaults.

    The test writes only the first fields of a batch. The first 5 have no defaults. The sixth is the
    batch's own CRC, whose default is 0. The first 11 end with `cleaned`, and the twelfth is
    `compression`.
    """
    # A batch is encoded as the list of its fields.
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(FIRST))
    payload = msgspec.msgpack.encode(fields[:field_count])
    header = struct.pack(">I", len(payload))
    crc = int(google_crc32c.value(header + payload))
    (batch_read,) = parse_log(header + struct.pack(">I", crc) + payload).batches
    has_crc = field_count > 5
    assert batch_read == (FIRST if has_crc else replace(FIRST, crc=0))


def test_frame_of_a_real_clients_batch_is_read_as_it_was_written() -> None:
    """A batch that a real Kafka client has sent keeps its header in Kafka's format."""
    gzip = 1
    sent = client_batch("a", "b", producer_id=4, base_sequence=9, compression=gzip)
    assert parse_log(encode_frame(sent)).batches == [sent]
