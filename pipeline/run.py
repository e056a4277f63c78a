"""From run directories to `tables/*` in each of them, and a summary small enough to print.

Two ways give the same tables. A run that fits into a process's memory is read whole by one task
(`whole_runs`). All others go through transforms that see them at once: `all_tables` says what is
computed, `table_graph` when, `table_store` where it goes.
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
from pipeline.whole_runs.tasks import analyze_by_run, workers_have_lab


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisProgress:
    """How far an analysis is: `done` of `total` parts, and the part whose work began last.

    A part is Spark's start or a run; of runs that are too large to be read whole, a table of all of
    them or their summary.
    """

    done: int
    total: int
    part: str


Progress = Callable[[AnalysisProgress], None]
"""Told when a part begins or ends, from one thread at a time."""
SHORT_WORK_ROWS = 500_000
"""Up to here a local Spark's start and planning are most of the work, and rows fit in memory."""
_ROWS_PER_PARTITION = 1_000_000
"""Of a trace: a third of them is kept, and a task sorts them in some 100 MB."""
_LOCAL_FILES = 2
"""Of a table before it is taken apart: one for each processor of a local Spark."""
_PARTS_OF_OTHERS = len(TABLE_NAMES) + 1
"""Parts of the work on runs that are not read whole: a table of all of them each, the summary."""
_THREADS = 3
"""Two keep two processors busy; one more, because each waits for its jobs now and then."""


def analyze(
    run_dirs: Sequence[Path],
    *,
    master: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    whole_run_rows: int = MAX_ROWS,
) -> tuple[RunSummary, ...]:
    """Compute every table of the runs, write them to `<run>/tables/<table>` and sum each run up.

    The summary goes beside them (`summary_file`).
    A run that broke off, or has no events at all, is analysed as far as it goes. Tables of an
    earlier analysis are replaced. `spark` is a session to use; None opens one on `master` (None: on
    this machine) and ends it. With another master the run directories must be where its workers
    see them under the same path.
    Units: runs of up to `whole_run_rows` rows are read whole by a task each, at most MAX_ROWS; 0
    leaves all to the transforms.
    Shape: one summary per distinct directory, in the order given.
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
    """Counts the parts that are done; several threads tell it."""

    progress: Progress | None
    total: int = 1
    _done: int = 0
    _part: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, part: str) -> None:
        with self._lock:
            self._part = part
            self._tell()

    def end(self, count: int = 1) -> None:
        with self._lock:
            self._done += count
            self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(AnalysisProgress(done=self._done, total=self.total, part=self._part))


@contextmanager
def session_for(runs: Sequence[RunFiles], master: str | None = None) -> Iterator[SparkSession]:
    """Open the Spark session that `analyze` uses for `runs`, and end it.

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
    """Read runs whole where that can be done, and leave the others to the transforms."""
    small = [run for run in runs if run.rows <= min(whole_run_rows, MAX_ROWS) and whole_run_rows]
    if not workers_have_lab(spark.sparkContext):
        small = []
    others = len(small) < len(runs)
    parts.total = 1 + len(small) + (_PARTS_OF_OTHERS if others else 0)
    parts.end()
    found = _read_whole(spark, small, parts)
    left = [run for run in runs if found.get(run.run) is None]
    if left and not others:
        parts.total += _PARTS_OF_OTHERS
    if left:
        found |= {summary.run: summary for summary in _transform(spark, left, parts)}
    summaries = (found[run.run] for run in runs)
    return tuple(summary for summary in summaries if summary is not None)


def _read_whole(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> dict[str, RunSummary | None]:
    """Return the summary of each run by its name, None of one that is left to the transforms."""
    if not runs:
        return {}
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        parts.end(done - told)
        told = done

    parts.begin("run" if len(runs) == 1 else "runs")
    found = analyze_by_run(spark.sparkContext, runs, tell)
    tell(len(runs))
    return {run.run: summary for run, summary in zip(runs, found, strict=True)}


def _transform(
    spark: SparkSession, runs: Sequence[RunFiles], parts: _Parts
) -> tuple[RunSummary, ...]:
    """Compute the tables of `runs`, all together, and their summaries."""
    # Beside the tables, so that moving them is a rename and a cluster's workers see the folder.
    with tempfile.TemporaryDirectory(prefix=".tables-", dir=runs[0].directory) as folder:
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
            aggregates = {
                name: [row.asDict() for row in found] for name, found in store.rows.items()
            }
            summaries = summarize_runs(aggregates, runs, clock_errors_us)
            for run in runs:
                drop_summary(run.directory)
            store.hand_out(runs)
            for summary in summaries:
                write_summary(summary)
            parts.end()
        finally:
            store.let_go()
    return summaries


def _compute(
    spark: SparkSession,
    runs: Sequence[RunFiles],
    store: TableStore,
    parts: _Parts,
    *,
    small: bool,
) -> None:
    """Compute every step into the store."""

    def carry_out(step: Step, frame: DataFrame) -> DataFrame:
        if step.result != "table":
            return store.carry_out(step, frame)
        parts.begin(step.name)
        found = store.carry_out(step, frame)
        parts.end()
        return found

    sources = {
        ROWS: read_events(spark, runs, held=small),
        DOCUMENTS: read_documents(spark, runs),
    }
    steps = (*STEPS, *SUMMED_UP)
    compute(steps, sources, carry_out, context=spark.sparkContext, threads=_THREADS)


def _set_partitions(spark: SparkSession, runs: Sequence[RunFiles]) -> None:
    """Let the number of partitions grow with the rows, and no processor stay idle."""
    of_rows = sum(run.rows for run in runs) // _ROWS_PER_PARTITION
    count = max(of_rows, spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", count)


def _is_short_work(runs: Sequence[RunFiles]) -> bool:
    return sum(run.rows for run in runs) <= SHORT_WORK_ROWS
