"""Trace files: what each incarnation writes while it lives, and how a run's files become one trace.

A node process appends framed MessagePack rows to `trace/<node>-<incarnation>.frames`, written to
the page cache once every loop turn that traced: `kill -9` loses nothing but a torn last frame,
which readers count. `parquet` makes Parquet of the merged rows.
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
MAX_ROW_BYTES = 16 * 1024 * 1024
"""No row is near it: a longer frame means that the file is not a trace file."""
_READ_BYTES = 1 << 20

_sort_key = attrgetter("time_us", "node", "incarnation", "seq")


class TraceFileCorrupt(Exception):
    """A trace file holds bytes that are no frame, elsewhere than at its torn end."""


def frames_path(trace_dir: Path, node: str, incarnation: int) -> Path:
    """Return where an incarnation's frames are written."""
    return trace_dir / f"{node}-{incarnation}.frames"


class FrameTraceWriter:
    """Appends rows to one file; `write` buffers, `flush` hands everything to the page cache.

    Invariant: rows come in the order of (`time_us`, `seq`), as one incarnation makes them.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()
        self._closed = False

    def write(self, row: TraceRow) -> None:
        """Add `row`; it is in the file after the next flush."""
        start = len(self._buffer)
        self._buffer += b"\0\0\0\0"
        self._encoder.encode_into(row, self._buffer, -1)
        FRAME_HEADER.pack_into(self._buffer, start, len(self._buffer) - start - FRAME_HEADER.size)

    def flush(self) -> None:
        """Write what is buffered. Raises: OSError, e.g. on a full disk."""
        if self._closed:
            return
        while self._buffer:
            del self._buffer[: os.write(self._file, self._buffer)]

    def close(self) -> None:
        """Flush and close; twice does no harm."""
        if not self._closed:
            self.flush()
            self._closed = True
            os.close(self._file)


class FrameDecoder:
    """Cuts what is read of one trace file, piece by piece, into rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = msgspec.msgpack.Decoder(TraceRow)
        self._pending = b""

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished last frame wait for the rest of it."""
        return len(self._pending)

    def feed(self, block: bytes) -> Iterator[TraceRow]:
        """Yield the rows that `block` completes; it counts as read when they are all taken.

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
    """Iterates over the rows of one trace file, holding little more than one block in memory.

    After the iteration, `torn_bytes` counts what a kill left of an unfinished last frame.
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
    """A trace file, read. `torn_bytes` counts what is left of an unfinished last frame."""

    rows: tuple[TraceRow, ...]
    torn_bytes: int


def read_frames(path: Path) -> FrameFile:
    """Read one trace file as a whole. Raises: TraceFileCorrupt."""
    reader = FrameReader(path)
    rows = tuple(reader)
    return FrameFile(rows=rows, torn_bytes=reader.torn_bytes)


def merge_rows(sources: Sequence[Iterable[TraceRow]]) -> Iterator[TraceRow]:
    """Merge traces, each in its own order, by (`time_us`, `node`, `incarnation`, `seq`).

    Memory: one row of each source, so that a run of any size can be merged.
    """
    return heapq.merge(*sources, key=_sort_key)
