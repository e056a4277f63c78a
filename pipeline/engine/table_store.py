"""Where results go: to the steps that read them, to the driver, and in the end to the runs.

Two ways, one for little data and one for any amount. Both keep plans short, and compute nothing
twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.engine.run_files import RunFiles
from pipeline.engine.step import Step
from pipeline.engine.table_files import emptied
from pipeline.table_columns import ARROW_TYPES


class TableStore(Protocol):
    """Computes what a step describes; safe to use from several threads."""

    @property
    def rows(self) -> dict[str, Sequence[Row]]:
        """What the driver wanted, by the name of its step."""
        ...

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Compute a step, or leave it to those that read it; return what they shall read."""
        ...

    def hand_out(self, runs: Sequence[RunFiles]) -> None:
        """Put each run's part of every table into its directory, also where it has no rows."""
        ...

    def let_go(self) -> None:
        """Free what is held: the session may be the caller's."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStore:
    """Keeps everything in memory: for runs of a few 100,000 events, on this machine.

    All is one partition, so that no join, window or aggregation needs a shuffle; steps that run at
    once keep the processors busy. The driver writes the files: Hadoop's file system starts a
    process for each folder and file that it makes.
    """

    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    _tables: dict[str, pa.Table] = field(default_factory=dict)
    _held: list[DataFrame] = field(default_factory=list)

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Compute a step, or leave it to those that read it; return what they shall read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
        if step.result in ("rows", "view"):
            return frame
        one = frame.coalesce(1)
        if step.filtered_by is not None:
            # Kept as columns of some rows each, with the least and greatest value: a reader skips
            # those without its values. By their hash, because strings take longer to sort.
            held = one.sortWithinPartitions(F.hash(step.filtered_by)).persist()
            self._held.append(held)
            return held
        held = one.localCheckpoint(eager=False)  # unlike persist, it leaves its plan behind
        if step.result == "table":
            found = [row.asDict() for row in held.collect()]
            self._tables[step.name] = pa.Table.from_pylist(found, _arrow_schema(held.schema))
        return held

    def hand_out(self, runs: Sequence[RunFiles]) -> None:
        """Write each run's part of every table into its directory, also where it has no rows."""
        for name, table in self._tables.items():
            for run in runs:
                target = emptied(run.directory, name)
                part = table.filter(pc.equal(table["run"], run.run))
                pq.write_table(part, target / "part-00000.parquet")

    def let_go(self) -> None:
        """Free what is held: the session may be the caller's."""
        for frame in self._held:
            frame.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    """Keeps steps with Spark's workers, all rows of a run in one partition: for any amount.

    Every key begins with the run, so that joins, windows and aggregations of what lies there by run
    need no shuffle, and nothing is computed twice. What does not fit in memory goes to disk.
    A table is written to `folder` in few files, as it lies; the driver takes them apart. A writer
    with a file for each run would start three processes for each (see MemoryStore).
    """

    folder: Path
    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    files_per_table: int | None = None  # None: one for each partition, in parallel
    _schemas: dict[str, StructType] = field(default_factory=dict)
    _held: list[DataFrame] = field(default_factory=list)

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Compute a step, or leave it to those that read it; return what they shall read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
        if step.result in ("rows", "view"):
            return frame
        if step.filtered_by is not None:
            by_run = frame.repartition("run").sortWithinPartitions(F.hash(step.filtered_by))
            held = by_run.persist()
            self._held.append(held)
            return held
        held = frame.localCheckpoint(eager=False)
        if step.result == "table":
            few = held if self.files_per_table is None else held.coalesce(self.files_per_table)
            few.write.options(**_PLAIN_COMMIT).parquet(f"file://{self.folder / step.name}")
            self._schemas[step.name] = frame.schema
        return held

    def hand_out(self, runs: Sequence[RunFiles]) -> None:
        """Write each run's part of every table into its directory, also where it has no rows."""
        for name, schema in self._schemas.items():
            targets = {run.run: emptied(run.directory, name) for run in runs}
            found = set()
            for number, path in enumerate(sorted((self.folder / name).glob("*.parquet"))):
                for run, part in _split_by_run(pq.read_table(path)):
                    pq.write_table(part, targets[run] / f"part-{number:05d}.parquet")
                    found.add(run)
            empty = _arrow_schema(schema).empty_table()
            for run in targets.keys() - found:
                pq.write_table(empty, targets[run] / "part-empty.parquet")

    def let_go(self) -> None:
        """Free what is held: the session may be the caller's."""
        for frame in self._held:
            frame.unpersist()


_PLAIN_COMMIT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Tasks move their files to where they belong: nobody reads them before the job has ended."""


def _split_by_run(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Return the rows of each run, in their order."""
    by_run = table.replace_schema_metadata(None).sort_by("run")
    names = pc.run_end_encode(by_run["run"].combine_chunks())
    start = 0
    for name, end in zip(names.values.to_pylist(), names.run_ends.to_pylist(), strict=True):
        yield name, by_run.slice(start, end - start)
        start = end


def _arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([(each.name, ARROW_TYPES[each.dataType.simpleString()]) for each in schema])
