"""Trace files: what each incarnation writes while it lives, and the Parquet made of it afterwards.

A node process appends framed MessagePack rows to `trace/<node>-<incarnation>.frames`, written to
the page cache once every loop turn that traced: `kill -9` loses nothing but a torn last frame,
which readers count. Finished runs are merged in time order and written as Parquet with the types
of `protocol.trace.TRACE_COLUMNS`; the virtual runtime's rows go the same way without the frames.
"""

import heapq
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.trace import TRACE_COLUMNS, TraceRow

FRAME_HEADER = struct.Struct(">I")
MAX_ROW_BYTES = 16 * 1024 * 1024
"""No row is near it: a longer frame means that the file is not a trace file."""
ROWS_PER_CHUNK = 65_536
"""Rows that a Parquet row group holds, and that are in memory at once while writing."""
_READ_BYTES = 1 << 20

_ARROW_TYPES = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32()}
TRACE_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in TRACE_COLUMNS])
"""The Arrow schema of a trace. Strings are dictionary-encoded in the file, plain to its readers."""
_STRING_COLUMNS = [name for name, kind in TRACE_COLUMNS if kind == "string"]

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


class FrameReader:
    """Iterates over the rows of one trace file, holding little more than one block in memory.

    After the iteration, `torn_bytes` counts what a kill left of an unfinished last frame.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_bytes = 0

    def __iter__(self) -> Iterator[TraceRow]:
        """Yield the rows in file order. Raises: TraceFileCorrupt."""
        decoder = msgspec.msgpack.Decoder(TraceRow)
        pending = b""
        with self.path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                pending += block
                start = 0
                while len(pending) - start >= FRAME_HEADER.size:
                    (length,) = FRAME_HEADER.unpack_from(pending, start)
                    if length > MAX_ROW_BYTES:
                        raise TraceFileCorrupt(f"{self.path}: a frame of {length} bytes")
                    end = start + FRAME_HEADER.size + length
                    if end > len(pending):
                        break
                    try:
                        row = decoder.decode(pending[start + FRAME_HEADER.size : end])
                    except msgspec.MsgspecError as error:
                        raise TraceFileCorrupt(f"{self.path}: {error}") from error
                    yield row
                    start = end
                pending = pending[start:]
        self.torn_bytes = len(pending)


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


class ParquetTraceWriter:
    """Writes rows to one Parquet file, in chunks; an instance is a RowObserver.

    The file appears under its name when it is complete: readers never see half of it.
    """

    def __init__(self, path: Path, *, rows_per_chunk: int = ROWS_PER_CHUNK) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows_written = 0
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._rows_per_chunk = rows_per_chunk
        self._rows: list[TraceRow] = []
        self._writer = pq.ParquetWriter(
            self._unfinished,
            TRACE_SCHEMA,
            compression="zstd",
            use_dictionary=_STRING_COLUMNS,
        )

    def __call__(self, row: TraceRow) -> None:
        """Add `row`."""
        self._rows.append(row)
        if len(self._rows) >= self._rows_per_chunk:
            self._write_chunk()

    def close(self) -> None:
        """Finish the file and give it its name; twice does no harm."""
        if self._writer.is_open:
            self._write_chunk()
            self._writer.close()
            self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Throw away what was written, unless it is complete."""
        if self._writer.is_open:
            self._writer.close()
            self._unfinished.unlink()

    def __enter__(self) -> "ParquetTraceWriter":
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file; after an error, delete it instead."""
        if kind is None:
            self.close()
        else:
            self.discard()

    def _write_chunk(self) -> None:
        if self._rows:
            self._writer.write_table(rows_to_table(self._rows))
            self.rows_written += len(self._rows)
            self._rows.clear()


def rows_to_table(rows: Sequence[TraceRow]) -> pa.Table:
    """Return `rows` as an Arrow table of TRACE_SCHEMA."""
    columns: Iterable[Sequence[object]] = zip(*map(msgspec.structs.astuple, rows), strict=True)
    if not rows:
        columns = [() for _ in TRACE_SCHEMA]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, TRACE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=TRACE_SCHEMA)


def write_parquet(rows: Iterable[TraceRow], path: Path) -> int:
    """Write `rows`, in their order, as one Parquet file; return how many there were."""
    with ParquetTraceWriter(path) as writer:
        for row in rows:
            writer(row)
    return writer.rows_written


def read_parquet(path: Path) -> Iterator[TraceRow]:
    """Yield the rows of a Parquet trace in file order, one chunk in memory at a time."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_CHUNK):
            columns = [batch.column(name).to_pylist() for name, _ in TRACE_COLUMNS]
            for values in zip(*columns, strict=True):
                yield TraceRow(**dict(zip(TraceRow.__struct_fields__, values, strict=True)))
