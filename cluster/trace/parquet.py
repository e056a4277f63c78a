"""Parquet traces: the rows of a finished run, on either runtime, with the schema's types.

A module of its own because node processes write traces and need no Arrow. Rows pass through in
chunks, so that a run of millions of rows fits.
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
"""Rows that a Parquet row group holds, and that are in memory at once while writing."""

_ARROW_TYPES = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32()}
TRACE_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in TRACE_COLUMNS])
"""The Arrow schema of a trace. Strings are dictionary-encoded in the file, plain to its readers."""
_STRING_COLUMNS = [name for name, kind in TRACE_COLUMNS if kind == "string"]


class TraceOutdated(Exception):
    """A trace was written by an earlier version, with fewer columns."""


class ParquetTraceWriter:
    """Writes rows to one Parquet file, in chunks; an instance is a RowObserver.

    The file appears under its name when it is complete: readers never see half of it.
    """

    def __init__(
        self, path: Path, *, sink: io.RawIOBase | None = None, rows_per_chunk: int = ROWS_PER_CHUNK
    ) -> None:
        """Begin the file; `sink` is where its bytes go, None: to `.<name>.unfinished` beside it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows_written = 0
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._rows_per_chunk = rows_per_chunk
        self._rows: list[TraceRow] = []
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
        """Finish the file and give it its name; twice does no harm."""
        if self._writer.is_open:
            self._write_chunk()
            self._writer.close()
            if self._sink is not None:
                self._sink.close()
            self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Throw away what was written, unless it is complete."""
        if self._writer.is_open:
            with suppress(OSError, pa.ArrowException):  # a footer for nobody
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
    """Yield the rows of a Parquet trace in file order, one chunk in memory at a time.

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
            for values in zip(*columns, strict=True):
                yield TraceRow(**dict(zip(TraceRow.__struct_fields__, values, strict=True)))
