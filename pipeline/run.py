"""The analysis: it reads run directories, writes `tables/*` into each, and returns summaries.

There are two ways to compute the tables of a run, and both give the same tables:

- Small runs: one Spark task reads a whole run, and computes its tables in plain Python
  (`whole_runs`). This is faster, but the run must fit into the memory of a process.
- Large runs: Spark's transforms compute the tables of all of them together. `all_tables` lists the
  steps, `table_graph` computes them in the right order, and `table_store` stores their results.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.all_tables import DOCUMENTS, ROWS, STEPS, TABLE_NAMES
from pipeline.engine.events import read_events
from pipeline.engine.run_documents import read_documents
from pipeline.engine.run_files import RunFiles, clock_error_us, find_run_files
from pipeline.engine.session import spark_session
from pipeline.engine.step import Step
from pipeline.engine.table_graph import compute
from pipeline.engine.table_store import FileStore, MemoryStore, TableStore
from pipeline.in_memory.summary import MAX_ROWS
from pipeline.summary.figures import RunSummary
from pipeline.summary.spark_aggregates import SUMMED_UP
from pipeline.summary.summary import summarize_runs
from pipeline.summary.summary_file import drop_summary, write_summary
from pipeline.whole_runs.tasks import analyze_by_run, workers_have_package


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisProgress:
    """How far an analysis has come: `done` of `total` parts are done, and `part` began last.

    The start of Spark is one part, and so is each small run. The large runs have together one part
    for each table, and one part for their summaries.
    """

    done: int
    total: int
    part: str


Progress = Callable[[AnalysisProgress], None]
"""A function that is called when a part begins or ends, but never by two threads at once."""
SHORT_WORK_ROWS = 500_000
"""An analysis of at most this many rows is short work. Spark's start and planning take most of its
time, and all rows fit into memory. So a local Spark has other settings for it.
"""
_ROWS_PER_PARTITION = 1_000_000
"""For so many rows of the traces, Spark's data has one partition. A task works on one partition,
and keeps only a third of its rows. Sorting these takes some 100 MB.
"""
_LOCAL_FILES = 2
"""Into how many files a local Spark writes a table, before they are split by run: one for each of
its two processors.
"""
_PARTS_OF_LARGE_RUNS = len(TABLE_NAMES) + 1
"""The parts of the large runs (see AnalysisProgress): one for each table, and one for the
summaries.
"""
_THREADS = 3
"""How many threads run steps. Two would keep two processors busy if they never waited for Spark.
The third one works while another one waits.
"""


def analyze(
    run_dirs: Sequence[Path],
    *,
    master: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    whole_run_rows: int = MAX_ROWS,
) -> tuple[RunSummary, ...]:
    """Compute and write all tables of the runs, and the summary of each run; return the summaries.

    The tables are written to `<run>/tables/<table>`, and the summary beside them (`summary_file`).
    They replace those of an earlier analysis. If a run broke off, the events are analysed that it
    had written until then, which can be none. A directory that is given twice counts once.

    - `master`, `spark`: where Spark runs (by default on this machine), or a session to use. The
      workers of another machine must see the run directories under the same paths.
    - `whole_run_rows`: a run with at most this many rows counts as small, but never one with more
      than MAX_ROWS. With 0, all runs are large.

    Raises: FileNotFoundError if a run directory does not exist; RunNameClash if two runs have the
    same name; JavaMissing and SparkStartError if Spark cannot start; OSError if tables cannot be
    written.
    """
    for directory in run_dirs:
        if not directory.is_dir():
            raise FileNotFoundError(f"no run directory {directory}")
    runs = find_run_files(run_dirs)
    if not runs:
        return ()

    parts = _Parts(progress)
    parts.begin("starting Spark")
    if spark is not None:
        return _analyze(spark, runs, parts, whole_run_rows)
    with session_for(runs, master) as session:
        return _analyze(session, runs, parts, whole_run_rows)


@dataclass(slots=True)
class _Parts:
    """Counts the parts that are done, and calls `progress`. Several threads may use it.

    Before the number of parts is known, `total` is 1, for the start of Spark.
    """

    progress: Progress | None
    total: int = 1
    _done: int = 0
    _part: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, part: str) -> None:
        """Report that a part begins."""
        with self._lock:
            self._part = part
            self._report()

    def end(self, count: int = 1) -> None:
        """Report that `count` more parts are done."""
        with self._lock:
            self._done += count
            self._report()

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(AnalysisProgress(done=self._done, total=self.total, part=self._part))


@contextmanager
def session_for(runs: Sequence[RunFiles], master: str | None = None) -> Iterator[SparkSession]:
    """Open a Spark session with settings that suit the size of `runs`; end it after the block.

    Raises: JavaMissing and SparkStartError if Spark cannot start.
    """
    short_work = _is_short_work(runs)
    with spark_session(master, short_work=short_work) as session:
        if not short_work:
            _set_partitions(session, runs)
        yield session


def _analyze(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts, whole_run_rows: int
) -> tuple[RunSummary, ...]:
    """Analyse small runs by one task each, and all others by the transforms."""
    small: list[RunFiles] = []
    # Small runs need this package on the workers, while the transforms need no Python there.
    if whole_run_rows > 0 and workers_have_package(spark.sparkContext):
        small = [run for run in runs if run.rows <= min(whole_run_rows, MAX_ROWS)]
    has_large_runs = len(small) < len(runs)
    parts.total = 1 + len(small) + (_PARTS_OF_LARGE_RUNS if has_large_runs else 0)
    parts.end()  # the start of Spark is done

    summaries = _analyze_small(spark, small, parts)
    # A small run can have rows that plain Python cannot read (`in_memory.summary.rows_of`). Then it
    # has no summary yet, and the transforms must analyse it, too. If there were no large runs, this
    # adds their parts to the total.
    left = [run for run in runs if summaries.get(run.run) is None]
    if left and not has_large_runs:
        parts.total += _PARTS_OF_LARGE_RUNS
    if left:
        summaries |= {summary.run: summary for summary in _analyze_large(spark, left, parts)}
    in_order = (summaries[run.run] for run in runs)
    return tuple(summary for summary in in_order if summary is not None)


def _analyze_small(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> dict[str, RunSummary | None]:
    """Analyse each run by one task; return the summaries by run, None if it cannot be read so."""
    if not runs:
        return {}
    reported = 0  # how many runs `parts` has counted so far

    def count_up_to(done: int) -> None:
        """Count the runs that are done since the last call; `done` runs are done in all."""
        nonlocal reported
        parts.end(done - reported)
        reported = done

    parts.begin("run" if len(runs) == 1 else "runs")
    summaries = analyze_by_run(spark.sparkContext, runs, count_up_to)
    count_up_to(len(runs))
    return {run.run: summary for run, summary in zip(runs, summaries, strict=True)}


def _analyze_large(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> tuple[RunSummary, ...]:
    """Compute the tables of `runs`, all together, and their summaries."""
    # The workers of a cluster see the run directories, so the temporary folder is in one of them.
    with tempfile.TemporaryDirectory(prefix=".tables-", dir=runs[0].directory) as folder:
        is_local = spark.sparkContext.master.startswith("local")
        in_memory = is_local and _is_short_work(runs)
        store: TableStore
        if in_memory:
            store = MemoryStore()
        else:
            files_per_table = _LOCAL_FILES if is_local else None
            store = FileStore(folder=Path(folder), files_per_table=files_per_table)
        try:
            _compute(spark, runs, store, parts, in_memory=in_memory)
            parts.begin("summary")
            clock_errors_us = {run.run: clock_error_us(run.directory) for run in runs}
            aggregates = {name: [row.asDict() for row in rows] for name, rows in store.rows.items()}
            summaries = summarize_runs(aggregates, runs, clock_errors_us)
            # A summary is the sign that the tables are complete. So the old ones are removed before
            # the tables are written, and the new ones are written after them.
            for run in runs:
                drop_summary(run.directory)
            store.write_tables(runs)
            for summary in summaries:
                write_summary(summary)
            parts.end()
        finally:
            store.release()
    return summaries


def _compute(
    spark: SparkSession,
    runs: Sequence[RunFiles],
    store: TableStore,
    parts: _Parts,
    *,
    in_memory: bool,
) -> None:
    """Compute all steps, and keep their results in the store."""

    def carry_out(step: Step, frame: DataFrame) -> DataFrame:
        """Keep the result of a step; a table is a part of the progress."""
        if step.result != "table":
            return store.carry_out(step, frame)
        parts.begin(step.name)
        stored = store.carry_out(step, frame)
        parts.end()
        return stored

    sources = {
        ROWS: read_events(spark, runs, held=in_memory),
        DOCUMENTS: read_documents(spark, runs),
    }
    steps = (*STEPS, *SUMMED_UP)
    compute(steps, sources, carry_out, context=spark.sparkContext, threads=_THREADS)


def _set_partitions(spark: SparkSession, runs: Sequence[RunFiles]) -> None:
    """Set into how many partitions Spark divides the rows, at least one for each processor."""
    for_rows = sum(run.rows for run in runs) // _ROWS_PER_PARTITION
    count = max(for_rows, spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", count)


def _is_short_work(runs: Sequence[RunFiles]) -> bool:
    return sum(run.rows for run in runs) <= SHORT_WORK_ROWS
