"""The format of a log file: its frames, and the torn tail that a kill may leave at its end.

- A log file is a sequence of frames, one for each batch. A frame is the length of its payload and a
  CRC (checksum), with 4 bytes each, and the payload.
- `parse_log` reads frames up to the first one that is not valid.
- Its result has the batches, `positions` and `end`. `positions` has the byte at which each frame
  begins and, as its last item, the byte at which the last frame ends. `end` is this last item.
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
    """A batch is read with all its fields, also its CRC and its epochs."""
    log = parse_log(FRAMES)
    assert log.batches == [FIRST, SECOND]
    assert log.positions == [0, len(encode_frame(FIRST)), len(FRAMES)]
    # The log end offset after two batches, after one, and after none.
    assert [log.end_offset(batch_count) for batch_count in (2, 1, 0)] == [3, 2, 0]


def test_log_is_whole_up_to_any_byte_at_which_it_is_cut() -> None:
    """A kill may stop a write at any byte. The batches whose frames are whole remain."""
    for cut in range(len(FRAMES)):
        log = parse_log(FRAMES[:cut])
        first_is_whole = cut >= len(encode_frame(FIRST))
        assert log.batches == ([FIRST] if first_is_whole else [])
        assert log.end <= cut


@pytest.mark.parametrize("position", range(len(encode_frame(SECOND))))
def test_flipped_bit_anywhere_ends_the_log_before_its_batch(position: int) -> None:
    """The CRC covers every byte of a frame, also the length.

    A wrong length would make the frame reach into the next one.
    """
    content = bytearray(FRAMES + encode_frame(THIRD))
    content[len(encode_frame(FIRST)) + position] ^= 1 << 2
    assert parse_log(bytes(content)).batches == [FIRST]


# The header of a frame has 8 bytes, and a page of the disk 4096.
@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 4096])
def test_zeros_behind_the_last_batch_are_no_batch(zeros: int) -> None:
    """After a power loss a file may have its size but not its data, and so end with zeros.

    An empty payload has the length 0 and, in CRC-32C, the CRC 0. So if the CRC did not cover the
    length, zeros would be a valid frame.
    """
    log = parse_log(FRAMES + bytes(zeros))
    assert log.batches == [FIRST, SECOND]
    assert log.end == len(FRAMES)


def test_batch_behind_zeros_is_not_read() -> None:
    """If a page in the middle of the file is lost, the log ends where the zeros begin."""
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
    """An older, longer log may have left a batch with a valid CRC at this place in the file.

    The offsets of such a batch overlap those of the batches before it, so the batch cannot belong
    to the log. A gap of offsets is allowed: see the next test.
    """
    log = parse_log(FRAMES + encode_frame(stray) + encode_frame(THIRD))
    assert log.batches == [FIRST, SECOND]
    assert log.end == len(FRAMES)


def test_batch_behind_a_hole_is_read() -> None:
    """A hole is a gap of offsets: the log cleaner has removed the batches in it.

    There is no gap of bytes in the file. The cleaner worked in this log, or in the leader's log,
    from which this log was copied.
    """
    behind = batch("x", base_offset=9)
    assert parse_log(FRAMES + encode_frame(behind)).batches == [FIRST, SECOND, behind]


def test_length_that_reaches_beyond_the_file_is_a_torn_tail() -> None:
    """A wrong length must not make the reader go beyond the end of the file."""
    assert parse_log(FRAMES + b"\xff" * 12).batches == [FIRST, SECOND]


def test_batch_count_at_a_position_has_whole_batches_only() -> None:
    """A flush mark, the byte up to which a file is flushed, may be in the middle of a batch.

    `batch_count_at(position)` returns the number of batches that end at this byte or before it.
    """
    log = parse_log(FRAMES)
    first_end = len(encode_frame(FIRST))
    positions = (0, first_end - 1, first_end, first_end + 1, len(FRAMES), len(FRAMES) + 9)
    assert [log.batch_count_at(position) for position in positions] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("field_count", [5, 11, 12])
def test_frame_of_an_earlier_version_is_read_with_the_defaults(field_count: int) -> None:
    """Disks outlive a release. So new fields come at the end of a batch, and have defaults.

    A frame with 5 fields has only the fields without a default. The CRC of the batch, its sixth
    field, is then missing. The eleventh field is `cleaned`, and the twelfth is `compression`.
    """
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(FIRST))
    payload = msgspec.msgpack.encode(fields[:field_count])
    header = struct.pack(">I", len(payload))
    crc = int(google_crc32c.value(header + payload))
    (read,) = parse_log(header + struct.pack(">I", crc) + payload).batches
    assert read == (FIRST if field_count > 5 else replace(FIRST, crc=0))


def test_frame_of_a_real_clients_batch_is_read_as_it_was_written() -> None:
    """Only the batch of a real client has a header in Kafka's format. The frame must keep it."""
    sent = client_batch("a", "b", producer_id=4, base_sequence=9, compression=1)
    assert parse_log(encode_frame(sent)).batches == [sent]
