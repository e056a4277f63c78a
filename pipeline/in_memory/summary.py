"""The summary of one run without Spark: from its event files, or from rows that are in memory.

The figures are those that Spark's tables give (`pipeline.run.analyze`): both readers feed
`summary.summary`, and the tests hold them against each other. For many runs at once call
`summarize_rows` wherever the rows are, or `summarize_directory`, a process each.
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
"""Larger runs are left to Spark's transforms: a row in memory takes 0.9 KB, 100,000 a second."""
ROWS_AT_ONCE = 500_000
"""Up to here somebody waits for the figures: a few seconds, where Spark's tables follow anyway."""
_NAMES = [name for name, _ in TRACE_COLUMNS]
_TEXTS = [name for name, kind in TRACE_COLUMNS if kind == "string"]
_KINDS = frozenset(kind.value for kind in TraceKind)
_COUNTED = frozenset({TraceKind.RECORDS_CONSUMED, TraceKind.RECORDS_PRODUCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The rows of one run: those that can be used, in any order, and the others with reasons."""

    good: Sequence[TraceRow]
    bad: Sequence[TableRow] = ()


@contextmanager
def collecting_no_cycles() -> Iterator[None]:
    """Keep Python's cyclic collector away: millions of rows live to the end, and none is a cycle.

    Looking through them again and again takes a quarter of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def summarize_directory(directory: Path, *, max_rows: int | None = None) -> RunSummary | None:
    """Return the summary of the run in `directory`; None if it is left to Spark (`rows_of`).

    `max_rows` leaves runs with more of them to Spark, too.
    """
    (files,) = find_run_files([directory])
    if max_rows is not None and files.rows > max_rows:
        return None
    with collecting_no_cycles():
        found = rows_of(files)
        if found is None:
            return None
        return summary_of(files, found, Trace(found.good) if found.good else None)


def rows_of(files: RunFiles) -> RunRows | None:
    """Return the rows of a run's event files; None if they are left to Spark.

    So are more than MAX_ROWS rows, and rows of records that do not say how many, as a torn trace
    or an earlier version has: Spark counts what can be read of each.
    Raises: OSError.
    """
    if files.rows > MAX_ROWS:
        return None
    found = _sorted_out([each for path in files.events for each in _cells(path)])
    if not all(_says_how_many(row) for row in found.good if row.kind in _COUNTED):
        return None
    return found


def summarize_rows(
    rows: Sequence[TraceRow], *, run: str, directory: Path, clock_error_us: int = 0
) -> RunSummary:
    """Return the summary of a run whose rows are in memory, in any order.

    Units: `clock_error_us` between machines; 0 in virtual time.
    """
    files = RunFiles(run=run, directory=directory, events=(), rows=len(rows), unreadable=())
    trace = Trace(rows) if rows else None
    return _summary_of(files, RunRows(good=rows), trace, clock_error_us)


def summary_of(files: RunFiles, found: RunRows, trace: Trace | None) -> RunSummary:
    """Return the summary of the run in `files`; `trace` is that of its good rows, None of none."""
    return _summary_of(files, found, trace, clock_error_us(files.directory))


def _summary_of(files: RunFiles, found: RunRows, trace: Trace | None, error_us: int) -> RunSummary:
    named = {"run": files.run}
    sums = {"bad_row_counts": [row | named for row in bad_row_counts_of(found.bad)]}
    for name, aggregate_of in AGGREGATES.items():
        sums[name] = [] if trace is None else [row | named for row in aggregate_of(trace)]
    (summary,) = summarize_runs(sums, [files], {files.run: error_us})
    return summary


def _says_how_many(row: TraceRow) -> bool:
    detail = detail_of(row)
    return "count" in detail and (row.kind == TraceKind.RECORDS_PRODUCED or "last" in detail)


def _cells(path: Path) -> Iterator[tuple[Any, ...]]:  # Any: as TRACE_COLUMNS says
    """Yield the rows of an event file, equal texts being one object."""
    table = pq.read_table(path, read_dictionary=_TEXTS)
    columns = [
        _values(table[name]) if name in table.column_names else [None] * table.num_rows
        for name in _NAMES
    ]
    yield from zip(*columns, strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:  # Any: what the column holds
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no rows
        return []
    texts = [*array.dictionary.to_pylist(), None]
    return [texts[-1 if place is None else place] for place in array.indices.to_pylist()]


def _sorted_out(cells: Sequence[tuple[Any, ...]]) -> RunRows:
    """Tell rows that can be used from those that cannot."""
    good: list[TraceRow] = []
    suspects: list[TableRow] = []
    for each in cells:
        row = TraceRow(*each)
        if row.kind in _KINDS and None not in (row.time_us, row.seq, row.node, row.incarnation):
            good.append(row)
        else:
            suspects.append(dict(zip(_NAMES, each, strict=True)))
    return RunRows(good=good, bad=bad_rows_of(suspects))
