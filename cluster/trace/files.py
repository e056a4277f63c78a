"""Trace files: rows that each node writes while it runs. Later they are merged into one trace.

In real time, each process writes the trace rows of its nodes to files. There is one file for each
*incarnation* of a node, which is the time from a start to the next stop or kill. The third
incarnation of broker-0, for example, writes to `trace/broker-0-2.frames`. A file is a sequence of
frames. A frame is one row in MessagePack, with its length in front.

In each turn of its event loop, the process first writes the new rows to the page cache, and then
sends the messages of this turn. So after a `kill -9` no node has received a message whose row is
missing. At most the last frame is torn (written in part).

At the end of the run the files are merged into one trace, which `parquet` writes.
"""

import heapq
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import msgspec

from protocol.trace import TraceRow

FRAME_HEADER = struct.Struct(">I")
"""The length of the following row."""
MAX_ROW_BYTES = 16 * 1024 * 1024
"""Limit of a row's size, far above any real row: a longer frame means that the file is corrupt."""
_READ_BYTES = 1 << 20
"""Size of the blocks in which a reader reads a file."""

_sort_key = attrgetter("time_us", "node", "incarnation", "seq")
"""The key by which the rows of a trace are sorted; it is unique in a run."""


class TraceFileCorrupt(Exception):
    """A trace file has bytes that are not a frame. An unfinished last frame is no error."""


def frames_path(trace_dir: Path, node: str, incarnation: int) -> Path:
    """Return the path of an incarnation's frames."""
    return trace_dir / f"{node}-{incarnation}.frames"


class FrameTraceWriter:
    """Appends rows to one file. `write` puts a row into a buffer; `flush` writes the buffer."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()
        self._closed = False

    def write(self, row: TraceRow) -> None:
        """Add `row`; it is in the file after the next flush."""
        start = len(self._buffer)
        # The row's length is known only after the row is encoded. So zeros hold its place first.
        self._buffer += bytes(FRAME_HEADER.size)
        self._encoder.encode_into(row, self._buffer, -1)  # -1 means at the end of the buffer.
        FRAME_HEADER.pack_into(self._buffer, start, len(self._buffer) - start - FRAME_HEADER.size)

    def flush(self) -> None:
        """Write the buffer. Raises: OSError, e.g. on a full disk."""
        # A process flushes at the end of each turn. The node may have died in this turn, and its
        # file was closed then.
        if self._closed:
            return
        # One call may write only a part of the buffer.
        while self._buffer:
            del self._buffer[: os.write(self._file, self._buffer)]

    def close(self) -> None:
        """Flush and close. May be called twice."""
        if not self._closed:
            self.flush()
            self._closed = True
            os.close(self._file)


class FrameDecoder:
    """Decodes rows from successive blocks of one trace file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = msgspec.msgpack.Decoder(TraceRow)
        self._pending = b""

    @property
    def pending_bytes(self) -> int:
        """Number of bytes of an unfinished last frame."""
        return len(self._pending)

    def feed(self, block: bytes) -> Iterator[TraceRow]:
        """Yield the rows that `block` completes.

        The caller must take all rows before it feeds the next block. The bytes of an unfinished
        frame at the end of `block` are kept when the last row was taken.
        Raises: TraceFileCorrupt.
        """
        pending = self._pending + block
        start = 0
        while len(pending) - start >= FRAME_HEADER.size:
            (length,) = FRAME_HEADER.unpack_from(pending, start)
            if length > MAX_ROW_BYTES:
                raise TraceFileCorrupt(f"{self._path}: a frame of {length} bytes")
            end = start + FRAME_HEADER.size + length
            if end > len(pending):
                break
            try:
                row = self._decoder.decode(pending[start + FRAME_HEADER.size : end])
            except msgspec.MsgspecError as error:
                raise TraceFileCorrupt(f"{self._path}: {error}") from error
            yield row
            start = end
        self._pending = pending[start:]


class FrameReader:
    """Iterates over the rows of one trace file, with little more than one block in memory.

    After the iteration, `torn_bytes` is the size of an unfinished last frame.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_bytes = 0

    def __iter__(self) -> Iterator[TraceRow]:
        """Yield the rows in file order. Raises: TraceFileCorrupt."""
        decoder = FrameDecoder(self.path)
        with self.path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                yield from decoder.feed(block)
        self.torn_bytes = decoder.pending_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFile:
    """The content of a trace file. `torn_bytes` is the size of an unfinished last frame."""

    rows: tuple[TraceRow, ...]
    torn_bytes: int


def read_frames(path: Path) -> FrameFile:
    """Read a whole trace file. Raises: TraceFileCorrupt."""
    reader = FrameReader(path)
    rows = tuple(reader)
    return FrameFile(rows=rows, torn_bytes=reader.torn_bytes)


def merge_rows(sources: Sequence[Iterable[TraceRow]]) -> Iterator[TraceRow]:
    """Merge the rows of several files into one sequence, sorted by time.

    Each source must be sorted already. Only one row of each source is in memory at a time.
    """
    return heapq.merge(*sources, key=_sort_key)
