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

from pipeline.availability import availability
from pipeline.broker_phases import broker_phases
from pipeline.client_phases import client_phases
from pipeline.commits import commits
from pipeline.coordinator_tenures import coordinator_tenures
from pipeline.events import RunFiles, bad_rows, find_run_files, good_events, read_events
from pipeline.failovers import group_failovers
from pipeline.faults import faults
from pipeline.figures import RunSummary
from pipeline.groups import groups
from pipeline.lives import impairments
from pipeline.members import member_names
from pipeline.ownership import ownership
from pipeline.ownership_overlaps import ownership_overlaps
from pipeline.processing import processing
from pipeline.rebalances import rebalances
from pipeline.repeats import processed_by_both, repeated_records
from pipeline.runs import runs as runs_table
from pipeline.session import spark_session
from pipeline.summary import summarize
from pipeline.tenure_overlaps import tenure_overlaps

TABLE_NAMES = (
    "bad_rows",
    "runs",
    "groups",
    "faults",
    "coordinator_tenures",
    "broker_phases",
    "tenure_overlaps",
    "client_phases",
    "availability",
    "rebalances",
    "ownership",
    "ownership_overlaps",
    "processing",
    "commits",
)
"""In the order in which they are computed; docs/TABLES.md describes each."""

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
            tables = _compute(store, read_events(spark, runs))
        finally:
            store.let_go()
        progress("summary")
        clock_errors_us = {run.run: _clock_error_us(run.directory) for run in runs}
        summaries = summarize(tables, runs, clock_errors_us)
        for name, table in tables.items():
            for run in runs:
                store.hand_out(name, table.schema, run)
    return summaries


def _compute(store: _Store, rows: DataFrame) -> Mapping[str, DataFrame]:
    """Compute the tables by name, each from those before it."""
    events = store.hold(good_events(rows))
    bad = store.keep("bad_rows", bad_rows(rows))
    run = store.keep("runs", runs_table(events))
    group = store.keep("groups", groups(events))
    fault = store.keep("faults", faults(events, run))
    impaired = store.hold(impairments(events, fault, run))
    tenure = store.keep("coordinator_tenures", coordinator_tenures(events, run, impaired))
    broker = store.keep("broker_phases", broker_phases(events, fault, group))
    overlap = store.keep(
        "tenure_overlaps", tenure_overlaps(events, tenure, group, broker, impaired)
    )
    failovers = group_failovers(fault, group, broker, tenure)
    client = store.keep("client_phases", client_phases(events, failovers))
    available = store.keep("availability", availability(events, run, tenure, failovers))
    rebalance = store.keep(
        "rebalances", rebalances(events, fault, group, tenure, store.hold(member_names(events)))
    )
    owned = store.keep("ownership", ownership(events, run, group, tenure, impaired))
    repeats = store.hold(repeated_records(events))
    both = store.hold(processed_by_both(owned, run, repeats))
    owned_twice = store.keep("ownership_overlaps", ownership_overlaps(both, fault))
    processed = store.keep("processing", processing(events, repeats, both))
    commit = store.keep("commits", commits(events, fault))
    computed = (
        bad,
        run,
        group,
        fault,
        tenure,
        broker,
        overlap,
        client,
        available,
        rebalance,
        owned,
        owned_twice,
        processed,
        commit,
    )
    return dict(zip(TABLE_NAMES, computed, strict=True))


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
