"""The analysis: it reads run directories, writes `tables/*` into each, and returns summaries.

There are two ways to compute the tables of a run, and both give the same tables:

- Small runs: one Spark task reads a whole run, and computes its tables in plain Python
  (`whole_runs`). This is faster, but the run must fit into the memory of a process.
- Large runs: Spark computes the tables of all large runs together, in steps. A step is a function
  (transform) that computes one DataFrame from others. `all_tables` lists the steps, `table_graph`
  computes them in the right order, and `table_store` keeps their results.
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
from pipeline.summary.spark_aggregates import AGGREGATE_STEPS
from pipeline.summary.summary import summarize_runs
from pipeline.summary.summary_file import drop_summary, write_summary
from pipeline.whole_runs.tasks import analyze_by_run, workers_have_package


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisProgress:
    """How far an analysis has come: `done` of `total` parts are done, and `part` began last.

    The start of Spark is one part, and each small run is one part. All large runs together have one
    part for each table, and one more part for their summaries.
    """

    done: int
    total: int
    part: str


Progress = Callable[[AnalysisProgress], None]
"""A function that is called when a part begins or ends, but never by two threads at once."""
SHORT_WORK_ROWS = 500_000
"""An analysis of at most this many rows is short work: Spark's start and planning take most of the
time, and all rows fit into memory. So a local Spark gets other settings for short work.
"""
_ROWS_PER_PARTITION = 1_000_000
"""Number of rows of the traces in one partition of Spark's data. A task works on one partition. It
keeps only the telling rows (`all_tables`), which are a third of all rows, and sorts them. Sorting
the telling rows of one partition takes some 100 MB.
"""
_LOCAL_FILES = 2
"""Number of files into which a local Spark writes a table: one for each of two processors. The
driver (this Python process) then splits these files by run.
"""
_PARTS_OF_LARGE_RUNS = len(TABLE_NAMES) + 1
"""Number of parts of the large runs (see AnalysisProgress): one for each table, and one for the
summaries.
"""
_THREADS = 3
"""Number of threads that run steps. Two threads would keep two processors busy if they never waited
for Spark. The third thread works while another thread waits.
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
    The new files replace the files of an earlier analysis. If a run broke off, only the events that
    it had written before are analysed, and there may be none. A directory that is given twice
    counts once.

    - `master`: the address of the Spark cluster to use; by default, Spark runs on this machine. The
      workers of a cluster must see the run directories under the same paths.
    - `spark`: an open session to use; `master` is ignored then.
    - `whole_run_rows`: a run with at most this many rows counts as small. A run with more than
      MAX_ROWS rows is always large. With 0, all runs are large.

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
    """Counts the parts that are done, and calls `progress`. Several threads may use one object.

    Before the number of parts is known, `total` is 1, because the start of Spark is a part.
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
        """Call `progress`. The caller must hold the lock, so two threads never call it at once."""
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
    # The task of a small run is Python code of this package, so Spark's workers must have the
    # package. The transforms of large runs need no Python on the workers.
    if whole_run_rows > 0 and workers_have_package(spark.sparkContext):
        max_rows = min(whole_run_rows, MAX_ROWS)
        small = [run for run in runs if run.rows <= max_rows]
    has_large_runs = len(small) < len(runs)
    parts.total = 1 + len(small) + (_PARTS_OF_LARGE_RUNS if has_large_runs else 0)
    parts.end()  # the start of Spark is done

    summaries = _analyze_small(spark, small, parts)
    # The large runs have no summary yet, and perhaps some small runs have none, either. All of
    # these are analysed by the transforms.
    remaining = [run for run in runs if run.run not in summaries]
    if remaining:
        if not has_large_runs:
            # The total does not contain the parts of large runs yet.
            parts.total += _PARTS_OF_LARGE_RUNS
        for summary in _analyze_large(spark, remaining, parts):
            summaries[summary.run] = summary
    return tuple(summaries[run.run] for run in runs)


def _analyze_small(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> dict[str, RunSummary]:
    """Analyse each run by one task; return the summaries by the name of the run.

    A run has no summary here if plain Python cannot read its rows (`in_memory.summary.rows_of`).
    """
    if not runs:
        return {}
    reported = 0  # the number of runs that `parts` has counted so far

    def count_up_to(done: int) -> None:
        """Count the runs that are done since the last call; `done` runs are done in all."""
        nonlocal reported
        parts.end(done - reported)
        reported = done

    # Several tasks run at the same time, so one name stands for the parts of all these runs.
    parts.begin("run" if len(runs) == 1 else "runs")
    summaries = analyze_by_run(spark.sparkContext, runs, count_up_to)
    count_up_to(len(runs))
    return {
        run.run: summary
        for run, summary in zip(runs, summaries, strict=True)
        if summary is not None
    }


def _analyze_large(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> tuple[RunSummary, ...]:
    """Compute the tables and the summaries of all `runs` together, and write them."""
    # The workers of a cluster see the run directories. So the temporary folder is made in a run
    # directory (the first will do), where the workers see it, too.
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
            # The store has collected the rows of the aggregates (AGGREGATE_STEPS) as Spark's Rows.
            aggregates = {name: [row.asDict() for row in rows] for name, rows in store.rows.items()}
            summaries = summarize_runs(aggregates, runs, clock_errors_us)
            # A summary file is the sign that the tables beside it are complete. So the old
            # summaries are removed before the new tables are written, and the new summaries are
            # written after the tables.
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
        """Keep the result of a step. If it is a table, count it as a part of the progress."""
        if step.result != "table":
            return store.carry_out(step, frame)
        parts.begin(step.name)
        stored = store.carry_out(step, frame)
        parts.end()
        return stored

    # `held` promises that all rows are kept in memory before they are joined. MemoryStore does so.
    sources = {
        ROWS: read_events(spark, runs, held=in_memory),
        DOCUMENTS: read_documents(spark, runs),
    }
    steps = (*STEPS, *AGGREGATE_STEPS)
    compute(steps, sources, carry_out, context=spark.sparkContext, threads=_THREADS)


def _set_partitions(spark: SparkSession, runs: Sequence[RunFiles]) -> None:
    """Set the number of partitions into which Spark divides the rows.

    There is at least one for each processor.
    """
    for_rows = sum(run.rows for run in runs) // _ROWS_PER_PARTITION
    count = max(for_rows, spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", count)


def _is_short_work(runs: Sequence[RunFiles]) -> bool:
    """Return whether an analysis of `runs` is short work (SHORT_WORK_ROWS)."""
    return sum(run.rows for run in runs) <= SHORT_WORK_ROWS
