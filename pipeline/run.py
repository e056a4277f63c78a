"""The analysis: it reads run directories, writes `tables/*` into each, and returns summaries.

A run is one execution of an experiment; its rows are the events of its trace. Two ways give the
same tables:
- A small run, which fits into a process's memory: one Spark task reads the whole run, and computes
  its tables in plain Python (`whole_runs`).
- All larger runs together: Spark transforms compute the tables. `all_tables` lists the steps,
  `table_graph` orders them, `table_store` stores their results.
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
    """Progress of an analysis: `done` of `total` parts are done; `part` began last.

    The start of Spark is one part, and so is each run that one task reads whole. The runs that are
    too large for that have, all together, one part for each table and one part for their summaries.
    """

    done: int
    total: int
    part: str


Progress = Callable[[AnalysisProgress], None]
"""Called when a part begins or ends. Two threads never call it at the same time."""
SHORT_WORK_ROWS = 500_000
"""Short work is an analysis of at most this many rows. A local Spark has other settings for it.

In short work, Spark's start and planning take most of the time, and all rows fit in memory.
"""
_ROWS_PER_PARTITION = 1_000_000
"""Number of trace rows for each partition of Spark's data. A task works on one partition, and keeps
only a third of its rows. Sorting these takes some 100 MB.
"""
_LOCAL_FILES = 2
"""Number of files that a local Spark writes for a table, before the driver splits them by run.
There is one for each of its two processors.
"""
_PARTS_OF_LARGE_RUNS = len(TABLE_NAMES) + 1
"""Number of progress parts of the runs that are not read whole: one for each table, and one for the
summaries.
"""
_THREADS = 3
"""Number of threads that plan and run steps. Two threads would keep two processors busy if they
never waited for their Spark jobs; the third thread works while another one waits.
"""


def analyze(
    run_dirs: Sequence[Path],
    *,
    master: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    whole_run_rows: int = MAX_ROWS,
) -> tuple[RunSummary, ...]:
    """Compute and write every table of the runs, and a summary of each run; return the summaries.

    Tables go to `<run>/tables/<table>`, the summary beside them (`summary_file`). They replace the
    tables and the summary of an earlier analysis. If a run broke off, its analysis covers the
    events that were written, which can be none. `spark` is the session to use. If it is None, this
    function opens a session on `master`, and ends the session. If `master` is None, too, Spark runs
    on this machine. Workers of another machine must see the run directories under the same path.
    One task reads a whole run if the run has at most `whole_run_rows` rows, and at most MAX_ROWS.
    With `whole_run_rows` 0, the transforms analyse all runs. Returns one summary per distinct
    directory, in the order given.
    Raises: FileNotFoundError if a run directory does not exist; RunNameClash; JavaMissing and
    SparkStartError if no session was given; OSError if tables cannot be written.
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

    `total` is 1 until the number of parts is known: the start of Spark.
    """

    progress: Progress | None
    total: int = 1
    _done: int = 0
    _part: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, part: str) -> None:
        """Report that work on a part begins."""
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
    """Open a Spark session with the settings that suit the size of `runs`, and end it.

    Raises: JavaMissing; SparkStartError.
    """
    short_work = _is_short_work(runs)
    with spark_session(master, short_work=short_work) as session:
        if not short_work:
            _set_partitions(session, runs)
        yield session


def _analyze(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts, whole_run_rows: int
) -> tuple[RunSummary, ...]:
    """Analyse small runs by one task each, and all other runs by the transforms."""
    # `and whole_run_rows`: if it is 0, not even a run without rows is read whole.
    small = [run for run in runs if run.rows <= min(whole_run_rows, MAX_ROWS) and whole_run_rows]
    # Workers without this package cannot read a run in plain Python. The transforms need no Python
    # on the workers.
    if not workers_have_package(spark.sparkContext):
        small = []
    has_large_runs = len(small) < len(runs)
    parts.total = 1 + len(small) + (_PARTS_OF_LARGE_RUNS if has_large_runs else 0)
    parts.end()  # the first part, the start of Spark, is done

    summaries = _read_whole(spark, small, parts)
    # A small run can have rows that plain Python cannot read (`in_memory.summary.rows_of`). Then
    # its task returns no summary, and the transforms must analyse the run. The number of parts
    # grows here if they had nothing to do before.
    left = [run for run in runs if summaries.get(run.run) is None]
    if left and not has_large_runs:
        parts.total += _PARTS_OF_LARGE_RUNS
    if left:
        summaries |= {summary.run: summary for summary in _transform(spark, left, parts)}
    in_order = (summaries[run.run] for run in runs)
    return tuple(summary for summary in in_order if summary is not None)


def _read_whole(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> dict[str, RunSummary | None]:
    """Analyse each run by one task; return summaries by run.

    A summary is None if the task could not read the run. The transforms must then analyse it.
    """
    if not runs:
        return {}
    reported = 0  # number of finished runs that `parts` has counted already

    def count_up_to(done: int) -> None:
        """Report the runs that have ended since the last report; `done` runs have ended in all."""
        nonlocal reported
        parts.end(done - reported)
        reported = done

    parts.begin("run" if len(runs) == 1 else "runs")
    summaries = analyze_by_run(spark.sparkContext, runs, count_up_to)
    count_up_to(len(runs))
    return {run.run: summary for run, summary in zip(runs, summaries, strict=True)}


def _transform(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> tuple[RunSummary, ...]:
    """Compute the tables of `runs`, all together, and their summaries."""
    # The folder lies in a run directory, because the workers of a cluster see run directories.
    with tempfile.TemporaryDirectory(prefix=".tables-", dir=runs[0].directory) as folder:
        # A MemoryStore writes its files from this process, so it suits little data on this machine.
        local = spark.sparkContext.master.startswith("local")
        small = local and _is_short_work(runs)
        store: TableStore = (
            MemoryStore()
            if small
            else FileStore(folder=Path(folder), files_per_table=_LOCAL_FILES if local else None)
        )
        try:
            _compute(spark, runs, store, parts, small=small)
            parts.begin("summary")
            clock_errors_us = {run.run: clock_error_us(run.directory) for run in runs}
            aggregates = {name: [row.asDict() for row in rows] for name, rows in store.rows.items()}
            summaries = summarize_runs(aggregates, runs, clock_errors_us)
            # Order: remove the old summaries, write the tables, write the new summaries. If the
            # writing breaks off, no summary claims that the tables are current.
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
    small: bool,
) -> None:
    """Compute every step, and keep its result in the store."""

    def carry_out(step: Step, frame: DataFrame) -> DataFrame:
        """Store a step's result; a table is a part of the progress."""
        if step.result != "table":
            return store.carry_out(step, frame)
        parts.begin(step.name)
        stored = store.carry_out(step, frame)
        parts.end()
        return stored

    # `held` tells read_events whether the rows stay in memory. A MemoryStore keeps them there
    # before any join.
    sources = {
        ROWS: read_events(spark, runs, held=small),
        DOCUMENTS: read_documents(spark, runs),
    }
    steps = (*STEPS, *SUMMED_UP)
    compute(steps, sources, carry_out, context=spark.sparkContext, threads=_THREADS)


def _set_partitions(spark: SparkSession, runs: Sequence[RunFiles]) -> None:
    """Set the number of Spark's partitions for `runs`.

    There is one for each _ROWS_PER_PARTITION, and at least one for each processor.
    """
    for_rows = sum(run.rows for run in runs) // _ROWS_PER_PARTITION
    count = max(for_rows, spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", count)


def _is_short_work(runs: Sequence[RunFiles]) -> bool:
    return sum(run.rows for run in runs) <= SHORT_WORK_ROWS
