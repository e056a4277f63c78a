"""From run directories to `tables/*` in each of them, and a summary small enough to print.

The transforms see all runs at once. `all_tables` says what is computed, `table_graph` when,
`table_store` where it goes.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.all_tables import DOCUMENTS, ROWS, STEPS
from pipeline.engine.events import RunFiles, find_run_files, read_events
from pipeline.engine.run_documents import read_documents
from pipeline.engine.session import spark_session
from pipeline.engine.step import Step
from pipeline.engine.table_graph import compute
from pipeline.engine.table_store import FileStore, MemoryStore, TableStore
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary import SUMMED_UP, summarize_run
from pipeline.summary.summary_file import drop_summary, write_summary

Progress = Callable[[str], None]
"""Told the name of each table (or `summary`) when its work begins, from one thread at a time."""
SHORT_WORK_ROWS = 500_000
"""Up to here a local Spark's start and planning are most of the work, and rows fit in memory."""
_THREADS = 3
"""Two keep two processors busy; one more, because each waits for its jobs now and then."""


def analyze(
    run_dirs: Sequence[Path],
    *,
    master: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> tuple[RunSummary, ...]:
    """Compute every table of the runs, write them to `<run>/tables/<table>` and sum each run up.

    The summary goes beside them (`summary_file`).
    A run that broke off, or has no events at all, is analysed as far as it goes. Tables of an
    earlier analysis are replaced. `spark` is a session to use; None opens one on `master` (None: on
    this machine) and ends it. With another master the run directories must be where its workers
    see them under the same path.
    Shape: one summary per distinct directory, in the order given.
    Raises: FileNotFoundError if a run directory does not exist; RunNameClash; JavaMissing and
    SparkStartError if no session was given.
    """
    for directory in run_dirs:
        if not directory.is_dir():
            raise FileNotFoundError(f"no run directory {directory}")
    runs = find_run_files(run_dirs)
    if not runs:
        return ()
    if spark is not None:
        return _analyze(spark, runs, progress or _silent)
    with spark_session(master, short_work=_is_short_work(runs)) as session:
        return _analyze(session, runs, progress or _silent)


def _silent(_: str) -> None:
    """Report no progress."""


def _analyze(
    spark: SparkSession, runs: Sequence[RunFiles], progress: Progress
) -> tuple[RunSummary, ...]:
    # Beside the tables, so that moving them is a rename and a cluster's workers see the folder.
    with tempfile.TemporaryDirectory(prefix=".tables-", dir=runs[0].directory) as folder:
        local = spark.sparkContext.master.startswith("local")
        small = local and _is_short_work(runs)
        store: TableStore = MemoryStore() if small else FileStore(spark=spark, folder=Path(folder))
        try:
            _compute(spark, runs, store, progress, small=small)
            progress("summary")
            clock_errors_us = {run.run: _clock_error_us(run.directory) for run in runs}
            summaries = summarize_run(store.rows, runs, clock_errors_us)
            for run, summary in zip(runs, summaries, strict=True):
                drop_summary(run.directory)
                store.hand_out(run)
                write_summary(summary)
        finally:
            store.let_go()
    return summaries


def _compute(
    spark: SparkSession,
    runs: Sequence[RunFiles],
    store: TableStore,
    progress: Progress,
    *,
    small: bool,
) -> None:
    """Compute every step into the store."""
    told = threading.Lock()

    def carry_out(step: Step, frame: DataFrame) -> DataFrame:
        if step.result == "table":
            with told:
                progress(step.name)
        return store.carry_out(step, frame)

    sources = {
        ROWS: read_events(spark, runs, held=small),
        DOCUMENTS: read_documents(spark, runs),
    }
    steps = (*STEPS, *SUMMED_UP)
    compute(steps, sources, carry_out, context=spark.sparkContext, threads=_THREADS)


def _is_short_work(runs: Sequence[RunFiles]) -> bool:
    return sum(run.rows for run in runs) <= SHORT_WORK_ROWS


def _clock_error_us(directory: Path) -> int:
    """Return the error between the run's clocks, 0 where the manifest is missing or does not say.

    A run whose driver was killed has no whole manifest.
    """
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
    except (OSError, ValueError):
        return 0
    value = manifest.get("clock_error_us") if isinstance(manifest, dict) else None
    return value if isinstance(value, int) else 0
