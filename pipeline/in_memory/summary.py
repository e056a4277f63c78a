"""The summary of one run without Spark: from its event files, or from rows that are in memory.

A run that ends prints this summary at once, while Spark would need some seconds to start. The
figures are the same as the figures of an analysis with Spark (`pipeline.run.analyze`); tests
compare them. Use `summarize_rows` if the rows of the trace are in memory, and otherwise
`summarize_directory`. Each call uses one core. So to summarize many runs, use several processes.

A row of the trace is bad if a required value is missing, or if its kind is not known. Bad rows are
counted, and otherwise ignored.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.engine.run_files import RunFiles, clock_error_us, find_run_files
from pipeline.in_memory.runs import bad_rows_of
from pipeline.in_memory.trace import TableRow, Trace, detail_of
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary import summarize_runs
from pipeline.summary.trace_aggregates import AGGREGATES, bad_row_counts_of
from protocol.trace import TRACE_COLUMNS, TraceKind, TraceRow

MAX_ROWS = 2_000_000
"""Maximum number of rows of a run that is read into memory. Larger runs are left to Spark, because
100,000 rows take 90 MB of memory and a second.
"""
ROWS_AT_ONCE = 500_000
"""Maximum number of rows of a run whose summary a command shows before it starts Spark. Such a
summary takes only a few seconds. Spark then computes the same figures again, with the tables.
"""
_COLUMNS = [name for name, _ in TRACE_COLUMNS]
_TEXT_COLUMNS = [name for name, kind in TRACE_COLUMNS if kind == "string"]
_KNOWN_KINDS = frozenset(kind.value for kind in TraceKind)
_RECORD_KINDS = frozenset({TraceKind.RECORDS_CONSUMED, TraceKind.RECORDS_PRODUCED})
"""Kinds of rows about a batch of records. Their `detail` tells the number of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The rows of one run: the good rows in any order, and the rows of the table `bad_rows`."""

    good: Sequence[TraceRow]
    bad: Sequence[TableRow] = ()


@contextmanager
def collecting_no_cycles() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off within the block.

    The collector looks for objects that refer to one another in a cycle. The millions of rows of a
    trace form no cycles, but the collector would go through them again and again. This would take a
    quarter of the time of a summary.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def summarize_directory(directory: Path, *, max_rows: int | None = None) -> RunSummary | None:
    """Return the summary of the run in `directory`.

    Returns None if the run has more than `max_rows` rows, or if only Spark can read it (`rows_of`).
    """
    (files,) = find_run_files([directory])
    if max_rows is not None and files.rows > max_rows:
        return None
    with collecting_no_cycles():
        rows = rows_of(files)
        if rows is None:
            return None
        trace = Trace(rows.good) if rows.good else None  # a Trace needs at least one row
        return summary_of(files, rows, trace)


def rows_of(files: RunFiles) -> RunRows | None:
    """Return the rows of a run's event files; None if the run is left to Spark.

    A run is left to Spark if it has more than MAX_ROWS rows. It is also left to Spark if a row
    about records does not tell the number of records: the trace is damaged, or of an earlier
    version.
    Raises: OSError if a file cannot be read.
    """
    if files.rows > MAX_ROWS:
        return None
    rows = _separate_bad_rows([cells for path in files.events for cells in _cells(path)])
    if not all(_has_record_count(row) for row in rows.good if row.kind in _RECORD_KINDS):
        return None
    return rows


def summarize_rows(
    rows: Sequence[TraceRow], *, run: str, directory: Path, clock_error_us: int = 0
) -> RunSummary:
    """Return the summary of a run whose rows are in memory, in any order.

    `clock_error_us` is how far the clocks of the run's machines were apart. In virtual time there
    is only one clock, so it is 0.
    """
    files = RunFiles(run=run, directory=directory, events=(), rows=len(rows), unreadable=())
    trace = Trace(rows) if rows else None
    return _summary_of(files, RunRows(good=rows), trace, clock_error_us)


def summary_of(files: RunFiles, rows: RunRows, trace: Trace | None) -> RunSummary:
    """Return the summary of the run in `files`.

    `trace` has the good rows; it is None if there are no good rows.
    """
    return _summary_of(files, rows, trace, clock_error_us(files.directory))


def _summary_of(
    files: RunFiles, rows: RunRows, trace: Trace | None, clock_error_us: int
) -> RunSummary:
    """Compute the aggregates of a run, and make a summary of them."""
    aggregates = {"bad_row_counts": bad_row_counts_of(rows.bad)}
    for name, aggregate_of in AGGREGATES.items():
        aggregates[name] = [] if trace is None else aggregate_of(trace)
    # Spark computes aggregates of many runs, so its rows have a column with the run.
    aggregates_with_run = {
        name: [row | {"run": files.run} for row in aggregate]
        for name, aggregate in aggregates.items()
    }
    (summary,) = summarize_runs(aggregates_with_run, [files], {files.run: clock_error_us})
    return summary


def _has_record_count(row: TraceRow) -> bool:
    """Return whether a row about records tells all that the tables need.

    The tables need the number of records, and in the row of a member also the offset of the last
    record.
    """
    detail = detail_of(row)
    if "count" not in detail:
        return False
    return row.kind == TraceKind.RECORDS_PRODUCED or "last" in detail


def _cells(path: Path) -> Iterator[tuple[Any, ...]]:  # the types are those in TRACE_COLUMNS
    """Yield the values of each row of an event file, in the order of _COLUMNS.

    If the file does not have a column, the values of the column are None. Texts are read
    dictionary-encoded. So equal texts are one object, which saves memory.
    """
    table = pq.read_table(path, read_dictionary=_TEXT_COLUMNS)
    columns = [
        _values(table[name]) if name in table.column_names else [None] * table.num_rows
        for name in _COLUMNS
    ]
    yield from zip(*columns, strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:  # the type depends on the column
    """Return the values of a column, whether or not it is dictionary-encoded.

    A dictionary-encoded column has a list of its distinct values, and for each row an index in it.
    """
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # the column has no rows
        return []
    # The index of a null is None.
    texts = array.dictionary.to_pylist()
    return [None if index is None else texts[index] for index in array.indices.to_pylist()]


def _separate_bad_rows(rows_of_cells: Sequence[tuple[Any, ...]]) -> RunRows:
    """Return the good and the bad rows among the rows of a run's files."""
    good: list[TraceRow] = []
    bad: list[TableRow] = []
    for cells in rows_of_cells:
        row = TraceRow(*cells)
        # `TraceRow` does not check its values, so a required value can be None.
        required = (row.time_us, row.seq, row.node, row.incarnation)
        if row.kind in _KNOWN_KINDS and None not in required:
            good.append(row)
        else:
            bad.append(dict(zip(_COLUMNS, cells, strict=True)))
    return RunRows(good=good, bad=bad_rows_of(bad))
