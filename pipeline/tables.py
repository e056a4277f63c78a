"""From run directories to `tables/*` in each of them, and a summary small enough to print.

The transforms see all runs at once; each table is written once, split by run, and read back where
the next table needs it: plans stay short, and nothing is computed twice.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipeline.events import RunFiles, find_run_files, read_events
from pipeline.figures import RunSummary
from pipeline.run_documents import read_documents
from pipeline.session import spark_session
from pipeline.summary import summarize
from pipeline.table_list import DOCUMENTS, ROWS, STEPS

Progress = Callable[[str], None]
"""Told the name of each table (or `summary`) when its work begins."""
SHORT_WORK_ROWS = 500_000
"""Up to here a local Spark's start and planning are most of the work, and rows fit in memory."""
_RUN_KEY = "run_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """Tables on their way: written to a folder split by run, then handed out to the runs."""

    spark: SparkSession
    folder: Path
    progress: Progress
    fits_in_memory: bool
    _held: list[DataFrame] = field(default_factory=list)

    def hold(self, table: DataFrame) -> DataFrame:
        """Keep in memory what several tables are made of, if the runs are small.

        Reading the events from memory takes a third off the whole work.
        """
        if not self.fits_in_memory:
            return table
        self._held.append(table)
        return table.persist()

    def let_go(self) -> None:
        """Free what was held: the session may be the caller's."""
        for table in self._held:
            table.unpersist()

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Compute and write a table; returns it as read from what was written."""
        self.progress(name)
        path = f"file://{self.folder / name}"
        keyed = table.withColumn(_RUN_KEY, F.md5("run"))
        keyed.repartition(_RUN_KEY).write.partitionBy(_RUN_KEY).parquet(path)
        reader = self.spark.read.schema(table.schema).option("recursiveFileLookup", "true")
        return reader.parquet(path)

    def hand_out(self, name: str, schema: StructType, run: RunFiles) -> None:
        """Move a run's part of a table to its directory; an empty table where it has no rows."""
        key = hashlib.md5(run.run.encode(), usedforsecurity=False).hexdigest()
        part = self.folder / name / f"{_RUN_KEY}={key}"
        target = run.directory / "tables" / name
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(exist_ok=True)
        if part.is_dir():
            shutil.move(part, target)
        else:
            target.mkdir()
            empty = pa.schema([(f.name, _arrow_type(f.dataType)) for f in schema.fields])
            pq.write_table(empty.empty_table(), target / "part-empty.parquet")


def analyze(
    run_dirs: Sequence[Path],
    *,
    master: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> tuple[RunSummary, ...]:
    """Compute every table of the runs, write them to `<run>/tables/<table>` and sum each run up.

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
    short_work = sum(run.rows for run in runs) <= SHORT_WORK_ROWS
    with spark_session(master, short_work=short_work) as session:
        return _analyze(session, runs, progress or _silent)


def _silent(_: str) -> None:
    """Report no progress."""


def _analyze(
    spark: SparkSession, runs: Sequence[RunFiles], progress: Progress
) -> tuple[RunSummary, ...]:
    # Beside the tables, so that moving them is a rename and a cluster's workers see the folder.
    with tempfile.TemporaryDirectory(prefix=".tables-", dir=runs[0].directory) as staging:
        store = _Store(
            spark=spark,
            folder=Path(staging),
            progress=progress,
            fits_in_memory=sum(run.rows for run in runs) <= SHORT_WORK_ROWS,
        )
        try:
            tables = _compute(store, spark, runs)
        finally:
            store.let_go()
        progress("summary")
        clock_errors_us = {run.run: _clock_error_us(run.directory) for run in runs}
        summaries = summarize(tables, runs, clock_errors_us)
        for name, table in tables.items():
            for run in runs:
                store.hand_out(name, table.schema, run)
    return summaries


def _compute(
    store: _Store, spark: SparkSession, runs: Sequence[RunFiles]
) -> Mapping[str, DataFrame]:
    """Compute the tables by name, each from those before it."""
    frames = {ROWS: read_events(spark, runs), DOCUMENTS: read_documents(spark, runs)}
    for step in STEPS:
        frame = step.transform(*(frames[name] for name in step.inputs))
        if step.written:
            frame = store.keep(step.name, frame)
        elif step.shared:
            frame = store.hold(frame)
        frames[step.name] = frame
    return {step.name: frames[step.name] for step in STEPS if step.written}


def _arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column of ours; KeyError says that a table uses another."""
    return {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "array<string>": pa.list_(pa.string()),
    }[kind.simpleString()]


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
