"""The format of a log file, and the valid part of a file's content.

A log file is a sequence of frames, one for each batch. A frame has three parts:

- the length of the payload,
- a CRC-32C over this length and the payload,
- the payload: the batch in MessagePack.

A power loss may leave zeros where data was never written. Zeros are not a valid frame: they would
be a frame with length 0 and CRC 0, but the CRC over a length of 0 is not 0.

This module only encodes and parses bytes; `file_storage` reads and writes the files.
"""

import struct
from bisect import bisect_right
from dataclasses import dataclass

import google_crc32c
import msgspec

from protocol.ids import Offset
from protocol.records.batch import RecordBatch

_LENGTH = struct.Struct(">I")
"""Length of the payload, encoded as in the header; the CRC covers these bytes and the payload."""
_HEADER = struct.Struct(">II")
"""Header of a frame: the length of the payload, and the CRC of length and payload."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RecordBatch)


@dataclass(slots=True, kw_only=True)
class LogContent:
    """The batches at the beginning of a file that form a valid log.

    The frame of batch i begins at byte `positions[i]`. There is one position more than there are
    batches: the last position is the end of the last frame.
    """

    batches: list[RecordBatch]
    positions: list[int]

    @property
    def end(self) -> int:
        """Number of bytes up to the end of the last batch."""
        return self.positions[-1]

    def batch_count_at(self, position: int) -> int:
        """Return the number of batches that end at or below byte `position`."""
        # The first position is 0, where no batch ends, so 1 is subtracted.
        return bisect_right(self.positions, position) - 1

    def end_offset(self, batch_count: int) -> Offset:
        """Return the offset after the first `batch_count` batches; 0 if `batch_count` is 0."""
        return Offset(self.batches[batch_count - 1].next_offset if batch_count else 0)


def encode_frame(batch: RecordBatch) -> bytes:
    """Return the frame of `batch`."""
    payload = _encoder.encode(batch)
    length = len(payload)
    return _HEADER.pack(length, _frame_crc(length, payload)) + payload


def parse_log(content: bytes) -> LogContent:
    """Return the valid log at the start of a file's content.

    The log ends before the first
    - frame that is incomplete, has a wrong CRC (zeros and garbage have one), or is no batch, or
    - batch whose base offset is below the end of the batch before it.
    Source: Kafka LogSegment.recover, which truncates the log after the last valid batch.
    """
    batches: list[RecordBatch] = []
    positions = [0]
    view = memoryview(content)
    end = 0
    while len(content) - end >= _HEADER.size:
        length, crc = _HEADER.unpack_from(content, end)
        payload_start = end + _HEADER.size
        payload = bytes(view[payload_start : payload_start + length])
        if len(payload) < length or _frame_crc(length, payload) != crc:
            break
        # Even with a right CRC, another release of this project may have written the payload, in
        # another format.
        try:
            batch = _decoder.decode(payload)
        except msgspec.MsgspecError:
            break
        # A gap in the offsets is valid: a cleaning (log compaction) removes whole batches.
        if batches and batch.base_offset < batches[-1].next_offset:
            break
        batches.append(batch)
        end = payload_start + length
        positions.append(end)
    return LogContent(batches=batches, positions=positions)


def _frame_crc(length: int, payload: bytes) -> int:
    """Return the CRC-32C over the payload's length and the payload."""
    return int(google_crc32c.extend(google_crc32c.value(_LENGTH.pack(length)), payload))
