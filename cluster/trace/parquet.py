"""Parquet traces: the rows of a finished run, in every runtime, with the schema's types.

Rows are written and read in chunks, so that a trace with millions of rows needs little memory.
These functions are not in the module `files`, because the processes of nodes import `files`, and
should not have to import Arrow.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.trace import TRACE_COLUMNS, TraceRow

ROWS_PER_CHUNK = 65_536
"""Number of rows that are kept in memory, and then written together."""

_ARROW_TYPES = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32()}
TRACE_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in TRACE_COLUMNS])
"""Arrow schema of a trace. In the file, the columns of strings are dictionary-encoded, although
this schema says plain strings. Readers get plain strings."""
_STRING_COLUMNS = [name for name, kind in TRACE_COLUMNS if kind == "string"]


class TraceOutdated(Exception):
    """The trace was written by an earlier version of this program, and lacks some columns."""


class ParquetTraceWriter:
    """Writes rows to one Parquet file, in chunks; an instance is a RowObserver.

    Until the file is complete, it has another name. So readers never see a partial file.
    """

    def __init__(
        self, path: Path, *, sink: io.RawIOBase | None = None, rows_per_chunk: int = ROWS_PER_CHUNK
    ) -> None:
        """Begin the file `.<name>.unfinished`.

        If the caller has opened this file already, `sink` is the open file. If `sink` is None,
        Arrow opens the file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows_written = 0
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._rows_per_chunk = rows_per_chunk
        self._rows: list[TraceRow] = []
        """Rows that are not written yet."""
        self._sink = sink
        self._writer = pq.ParquetWriter(
            self._unfinished if sink is None else sink,
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
        """Finish the file and give it its name. May be called twice."""
        if self._writer.is_open:
            self._write_chunk()
            self._writer.close()
            if self._sink is not None:
                self._sink.close()
            self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Delete the file, unless it is complete."""
        if self._writer.is_open:
            # Closing writes the footer; it does not matter if that fails, as the file is deleted.
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            if self._sink is not None:
                self._sink.close()
            self._unfinished.unlink(missing_ok=True)

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
    # Each row becomes a tuple of its fields, and `zip` turns rows into columns.
    columns: Iterable[Sequence[object]] = zip(*map(msgspec.structs.astuple, rows), strict=True)
    if not rows:  # then `zip` yields no column at all
        columns = [() for _ in TRACE_SCHEMA]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, TRACE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=TRACE_SCHEMA)


def write_parquet(rows: Iterable[TraceRow], path: Path) -> int:
    """Write `rows` in their order to one Parquet file; return their number."""
    with ParquetTraceWriter(path) as writer:
        for row in rows:
            writer(row)
    return writer.rows_written


def read_parquet(path: Path) -> Iterator[TraceRow]:
    """Yield the rows of a Parquet trace in file order, with one chunk in memory at a time.

    Raises: TraceOutdated.
    """
    with pq.ParquetFile(path) as file:
        missing = [name for name, _ in TRACE_COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise TraceOutdated(
                f"{path} lacks {', '.join(missing)}: an earlier version wrote it; run it again"
            )
        for batch in file.iter_batches(batch_size=ROWS_PER_CHUNK):
            columns = [batch.column(name).to_pylist() for name, _ in TRACE_COLUMNS]
            # The fields of TraceRow are in the order of TRACE_COLUMNS.
            for values in zip(*columns, strict=True):
                yield TraceRow(**dict(zip(TraceRow.__struct_fields__, values, strict=True)))
