"""The format of a log file: frames at its beginning, and a torn tail that a kill may leave.

A log file is a sequence of frames, one for each batch: the length of the payload and a CRC, of 4
bytes each, then the payload. `parse_log` reads frames up to the first that is not valid; its result
has the batches, `positions` (where each frame begins, and the end of the last) and `end`, in bytes.
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

FIRST, SECOND, THIRD = (
    batch("a", "b", base_offset=0),
    batch("c", base_offset=2),
    batch("d", base_offset=3),
)
FRAMES = encode_frame(FIRST) + encode_frame(SECOND)


def test_frames_are_read_as_they_were_written() -> None:
    """A batch on the disk is the batch that was appended, CRC and epochs included."""
    log = parse_log(FRAMES)
    assert log.batches == [FIRST, SECOND]
    assert log.positions == [0, len(encode_frame(FIRST)), len(FRAMES)]
    # The log end offset behind the first two batches, behind the first, and before it.
    assert [log.end_offset(batch_count) for batch_count in (2, 1, 0)] == [3, 2, 0]


def test_log_is_whole_up_to_any_byte_at_which_it_is_cut() -> None:
    """A kill may stop a write at any byte; the batches whose frames are whole remain."""
    for cut in range(len(FRAMES)):
        log = parse_log(FRAMES[:cut])
        first_is_whole = cut >= len(encode_frame(FIRST))
        assert log.batches == ([FIRST] if first_is_whole else [])
        assert log.end <= cut


@pytest.mark.parametrize("position", range(len(encode_frame(SECOND))))
def test_flipped_bit_anywhere_ends_the_log_before_its_batch(position: int) -> None:
    """The CRC covers the length, too: with a wrong length the frame would reach into the next."""
    content = bytearray(FRAMES + encode_frame(THIRD))
    content[len(encode_frame(FIRST)) + position] ^= 1 << 2
    assert parse_log(bytes(content)).batches == [FIRST]


# A frame's header has 8 bytes, a page of the disk 4096.
@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 4096])
def test_zeros_behind_the_last_batch_are_no_batch(zeros: int) -> None:
    """A power loss may leave the file's size without its data: the file then ends in zeros.

    A CRC of the payload alone would make them valid: an empty payload has the length 0 and, in
    CRC-32C, the CRC 0.
    """
    log = parse_log(FRAMES + bytes(zeros))
    assert log.batches == [FIRST, SECOND]
    assert log.end == len(FRAMES)


def test_batch_behind_zeros_is_not_read() -> None:
    """A page of the file that was lost in the middle ends the log there, at the zeros."""
    assert parse_log(encode_frame(FIRST) + bytes(64) + encode_frame(SECOND)).batches == [FIRST]


@pytest.mark.parametrize(
    "stray",
    [
        batch("x", base_offset=2),
        batch("x", base_offset=0),
    ],
    ids=["again", "from the beginning"],
)
def test_batch_that_begins_before_the_last_one_ends_is_not_read(
    stray: RecordBatch,
) -> None:
    """An older, longer log may have left a batch with a valid CRC at this place.

    Its offsets overlap those before it. A gap of offsets would be no reason to stop: see the next
    test.
    """
    log = parse_log(FRAMES + encode_frame(stray) + encode_frame(THIRD))
    assert log.batches == [FIRST, SECOND]
    assert log.end == len(FRAMES)


def test_batch_behind_a_hole_is_read() -> None:
    """A hole is a gap of offsets, not of bytes: the log cleaner removed the batches in it.

    It did so in this log, or in the leader's, from which this log was copied.
    """
    behind = batch("x", base_offset=9)
    assert parse_log(FRAMES + encode_frame(behind)).batches == [FIRST, SECOND, behind]


def test_length_that_reaches_beyond_the_file_is_a_torn_tail() -> None:
    """Garbage in the place of a length must not be read past the end of the file."""
    assert parse_log(FRAMES + b"\xff" * 12).batches == [FIRST, SECOND]


def test_batch_count_at_a_position_has_whole_batches_only() -> None:
    """A flush mark, the byte up to which the file is flushed, may be in the middle of a batch.

    `batch_count_at(position)` is the number of batches that end at or before the byte `position`.
    """
    log = parse_log(FRAMES)
    first_end = len(encode_frame(FIRST))
    positions = (0, first_end - 1, first_end, first_end + 1, len(FRAMES), len(FRAMES) + 9)
    assert [log.batch_count_at(position) for position in positions] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("field_count", [5, 11, 12])
def test_frame_of_an_earlier_version_is_read_with_the_defaults(field_count: int) -> None:
    """New fields are added at the end of a batch, with defaults: a disk outlives a release.

    With 5 fields a frame has only those without a default, so not the CRC, which is the sixth.
    With 11 its newest field is `cleaned`, with 12 `compression`.
    """
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(FIRST))
    payload = msgspec.msgpack.encode(fields[:field_count])
    header = struct.pack(">I", len(payload))
    crc = int(google_crc32c.value(header + payload))
    (read,) = parse_log(header + struct.pack(">I", crc) + payload).batches
    assert read == (FIRST if field_count > 5 else replace(FIRST, crc=0))


def test_frame_of_a_real_clients_batch_is_read_as_it_was_written() -> None:
    """The frame keeps the header of Kafka's format, which only a real client's batch has."""
    sent = client_batch("a", "b", producer_id=4, base_sequence=9, compression=1)
    assert parse_log(encode_frame(sent)).batches == [sent]
