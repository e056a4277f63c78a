"""The summary of one run without Spark: from its event files, or from rows that are in memory.

The figures are equal to those of Spark's tables (`pipeline.run.analyze`), because both ways call
`summary.summary`. Tests compare them. To summarize many runs at the same time, use a process
for each: `summarize_rows` where the rows are in memory, else `summarize_directory`.

A bad row lacks a required cell or has an unknown kind. The summary counts bad rows, and otherwise
ignores them.
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
"""Maximum number of rows of a run that is read into memory. Spark's transforms read larger runs.

100,000 rows take 90 MB of memory and a second.
"""
ROWS_AT_ONCE = 500_000
"""Maximum number of rows of a run whose summary a command computes at once, before it starts Spark.

The command can print this summary after a few seconds. Spark then computes the same figures again,
with the tables.
"""
_NAMES = [name for name, _ in TRACE_COLUMNS]
"""Names of the columns of a trace."""
_TEXTS = [name for name, kind in TRACE_COLUMNS if kind == "string"]
"""Names of the columns that hold texts."""
_KINDS = frozenset(kind.value for kind in TraceKind)
"""Names of the known kinds of rows."""
_COUNTED = frozenset({TraceKind.RECORDS_CONSUMED, TraceKind.RECORDS_PRODUCED})
"""Kinds of rows about records; each row states in its `detail` how many records it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The rows of one run: the good rows in any order, and the rows of the table `bad_rows`."""

    good: Sequence[TraceRow]
    bad: Sequence[TableRow] = ()


@contextmanager
def collecting_no_cycles() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off within the block.

    The collector finds objects that refer to one another in a cycle. The millions of rows of a
    trace are in no cycle, and live until the end of the block. The collector would traverse them
    again and again, which takes a quarter of the time of a summary.
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
        # A Trace needs a row, because its last row can be the run's end.
        return summary_of(files, rows, Trace(rows.good) if rows.good else None)


def rows_of(files: RunFiles) -> RunRows | None:
    """Return the rows of a run's event files; None if Spark must read them.

    Spark must read a run in two cases: it has more than MAX_ROWS rows, or a row about records does
    not state their number (the trace is damaged, or an earlier version wrote it).
    Raises: OSError.
    """
    if files.rows > MAX_ROWS:
        return None
    rows = _separate_bad_rows([cells for path in files.events for cells in _cells(path)])
    if not all(_has_record_count(row) for row in rows.good if row.kind in _COUNTED):
        return None
    return rows


def summarize_rows(
    rows: Sequence[TraceRow], *, run: str, directory: Path, clock_error_us: int = 0
) -> RunSummary:
    """Return the summary of a run whose rows are in memory, in any order.

    `clock_error_us`: the largest difference between the clocks of the run's machines; 0 in virtual
    time (a simulated clock).
    """
    files = RunFiles(run=run, directory=directory, events=(), rows=len(rows), unreadable=())
    trace = Trace(rows) if rows else None
    return _summary_of(files, RunRows(good=rows), trace, clock_error_us)


def summary_of(files: RunFiles, rows: RunRows, trace: Trace | None) -> RunSummary:
    """Return the summary of the run in `files`.

    `trace`: the trace of the good rows; None if there are none.
    """
    return _summary_of(files, rows, trace, clock_error_us(files.directory))


def _summary_of(files: RunFiles, rows: RunRows, trace: Trace | None, error_us: int) -> RunSummary:
    """Return the summary; `error_us` is the error between the clocks of the run's machines."""
    # Spark's tables have a column `run`, which the rows in memory lack.
    of_run = {"run": files.run}
    aggregates = {"bad_row_counts": [row | of_run for row in bad_row_counts_of(rows.bad)]}
    for name, aggregate_of in AGGREGATES.items():
        aggregates[name] = [] if trace is None else [row | of_run for row in aggregate_of(trace)]
    (summary,) = summarize_runs(aggregates, [files], {files.run: error_us})
    return summary


def _has_record_count(row: TraceRow) -> bool:
    """Return whether a row states its number of records and, if consumed, the last offset."""
    detail = detail_of(row)
    return "count" in detail and (row.kind == TraceKind.RECORDS_PRODUCED or "last" in detail)


def _cells(path: Path) -> Iterator[tuple[Any, ...]]:  # Any: TRACE_COLUMNS has the types
    """Yield the cells of each row of an event file, in the order of _NAMES.

    A column that the file lacks holds None. The columns of texts are read as dictionaries of their
    distinct texts, so that equal texts are one object, which saves memory.
    """
    table = pq.read_table(path, read_dictionary=_TEXTS)
    columns = [
        _values(table[name]) if name in table.column_names else [None] * table.num_rows
        for name in _NAMES
    ]
    yield from zip(*columns, strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:  # Any: what the column holds
    """Return the values of a column, whether or not it is dictionary-encoded.

    A dictionary-encoded column has a list of its distinct values, and for each row an index in it.
    """
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # the column has no rows
        return []
    # The index of a missing value is None. It is replaced by -1, the index of the None that is put
    # at the end of the list.
    texts = [*array.dictionary.to_pylist(), None]
    return [texts[-1 if index is None else index] for index in array.indices.to_pylist()]


def _separate_bad_rows(rows_of_cells: Sequence[tuple[Any, ...]]) -> RunRows:
    """Return the good and the bad rows among the rows of a run's files."""
    good: list[TraceRow] = []
    unusable: list[TableRow] = []
    for cells in rows_of_cells:
        row = TraceRow(*cells)
        # `TraceRow` does not check its values, so a required cell can be None.
        if row.kind in _KINDS and None not in (row.time_us, row.seq, row.node, row.incarnation):
            good.append(row)
        else:
            unusable.append(dict(zip(_NAMES, cells, strict=True)))
    return RunRows(good=good, bad=bad_rows_of(unusable))
