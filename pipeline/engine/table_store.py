"""Stores: they keep the results of steps, for later steps and for the files of tables.

A DataFrame is at first only a plan: Spark's description of how to compute its rows. If ten steps
read it, Spark would plan and compute it ten times. So a store makes Spark compute the rows once and
keep them, and later steps read these rows. `Step.result` says what else happens to the rows of a
step. The rows of a `table` are written into the directory of every run. The rows of a step with the
result `rows` are collected by the driver (the Python process of the analysis). The rows of a `view`
are not kept at all.

There are two stores: MemoryStore for little data, and FileStore for any amount.
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
from pipeline.engine.table_files import empty_table_directory
from pipeline.table_columns import ARROW_TYPES


class TableStore(Protocol):
    """Keeps the results of steps. Several threads can use it at the same time."""

    @property
    def rows(self) -> dict[str, Sequence[Row]]:
        """The collected rows of steps whose result is `rows`, by the name of the step."""
        ...

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Keep the result of a step; return the DataFrame that later steps read."""
        ...

    def write_tables(self, runs: Sequence[RunFiles]) -> None:
        """Write each run's part of every table into its directory, even if the part has no rows."""
        ...

    def release(self) -> None:
        """Free the memory of the cached DataFrames.

        The end of the Spark session would also free it, but a session of the caller may go on.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStore:
    """Keeps all results in memory. It is made for runs of a few 100,000 events on this machine.

    All rows are in one partition. So no join, window or aggregation needs a shuffle (a
    redistribution of rows). All processors are still busy, because several steps run at the same
    time. The driver writes the files itself, because Spark would start a process for each folder
    and each file (through Hadoop's file system).
    """

    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    _tables: dict[str, pa.Table] = field(default_factory=dict)
    _cached: list[DataFrame] = field(default_factory=list)
    """The DataFrames that `release` must free."""

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Keep the result of a step; return the DataFrame that later steps read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
        if step.result in ("rows", "view"):
            return frame
        in_one_partition = frame.coalesce(1)
        if step.filtered_by is not None:
            # Spark caches rows in batches, and remembers the least and the greatest value of each
            # column in a batch. If the rows are sorted by a column, equal values are in few
            # batches, and a reader that filters by the column can skip all other batches. Sorting
            # by a hash is faster than sorting texts.
            by_hash = in_one_partition.sortWithinPartitions(F.hash(step.filtered_by))
            stored = by_hash.persist()
            self._cached.append(stored)
            return stored
        # `localCheckpoint` keeps the rows as `persist` does. It also drops the plan by which the
        # rows were computed, so the plans of later steps stay small. With `eager=False`, the rows
        # are computed when they are first read.
        stored = in_one_partition.localCheckpoint(eager=False)
        if step.result == "table":
            table_rows = [row.asDict() for row in stored.collect()]
            self._tables[step.name] = pa.Table.from_pylist(table_rows, _arrow_schema(stored.schema))
        return stored

    def write_tables(self, runs: Sequence[RunFiles]) -> None:
        """Write each run's part of every table into its directory, even if the part has no rows."""
        for name, table in self._tables.items():
            for run in runs:
                target = empty_table_directory(run.directory, name)
                part = table.filter(pc.equal(table["run"], run.run))
                pq.write_table(part, target / "part-00000.parquet")

    def release(self) -> None:
        """Free the cached DataFrames."""
        for frame in self._cached:
            frame.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    """Keeps results in the memory of Spark's workers, for any amount of data.

    All rows of a run are in one partition. All joins, windows and aggregations are by run and other
    columns, so none of them needs a shuffle (a redistribution of rows). Results that do not fit
    into memory go to disk. Spark writes a table in few files to `folder`, and the driver then
    splits these files by run. If Spark wrote a file for each run, it would start three processes
    for each file (through Hadoop's file system).
    """

    folder: Path
    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    files_per_table: int | None = None
    """Number of files into which Spark writes a table. None: a file for each partition."""
    _schemas: dict[str, StructType] = field(default_factory=dict)
    """The columns of each table, by the name of the table."""
    _cached: list[DataFrame] = field(default_factory=list)
    """The DataFrames that `release` must free."""

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Keep the result of a step; return the DataFrame that later steps read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
        if step.result in ("rows", "view"):
            return frame
        if step.filtered_by is not None:
            # `repartition` brings all rows of a run into one partition, once for all readers. The
            # rows are sorted for the same reason as in MemoryStore.
            by_run = frame.repartition("run").sortWithinPartitions(F.hash(step.filtered_by))
            stored = by_run.persist()
            self._cached.append(stored)
            return stored
        stored = frame.localCheckpoint(eager=False)
        if step.result == "table":
            # Spark writes one file for each partition.
            count = self.files_per_table
            partitions = stored if count is None else stored.coalesce(count)
            partitions.write.options(**_PLAIN_COMMIT).parquet(f"file://{self.folder / step.name}")
            self._schemas[step.name] = frame.schema
        return stored

    def write_tables(self, runs: Sequence[RunFiles]) -> None:
        """Write each run's part of every table into its directory, even if the part has no rows."""
        for name, schema in self._schemas.items():
            targets = {run.run: empty_table_directory(run.directory, name) for run in runs}
            runs_with_rows = set()
            for number, path in enumerate(sorted((self.folder / name).glob("*.parquet"))):
                for run, part in _split_by_run(pq.read_table(path)):
                    pq.write_table(part, targets[run] / f"part-{number:05d}.parquet")
                    runs_with_rows.add(run)
            # A table without rows also gets a file, from which readers learn its columns.
            empty = _arrow_schema(schema).empty_table()
            for run in targets.keys() - runs_with_rows:
                pq.write_table(empty, targets[run] / "part-empty.parquet")

    def release(self) -> None:
        """Free the cached DataFrames."""
        for frame in self._cached:
            frame.unpersist()


_PLAIN_COMMIT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Settings with which each task of Spark moves its file to the final place as soon as it is
written. This is faster, and safe here, because the driver reads the files only after all tasks have
ended.
"""


def _split_by_run(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name and the rows of each run, in the order of the names."""
    # The metadata in the schema is Spark's description of the table. The files of runs need none.
    by_run = table.replace_schema_metadata(None).sort_by("run")
    # The encoding has two lists: each name once (`values`), and where the rows of the name end
    # (`run_ends`). For example, `a a a b b` becomes `a b` and `3 5`.
    names = pc.run_end_encode(by_run["run"].combine_chunks())
    start = 0
    for name, end in zip(names.values.to_pylist(), names.run_ends.to_pylist(), strict=True):
        yield name, by_run.slice(start, end - start)
        start = end


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return Arrow's schema for the columns of a DataFrame."""
    columns = [(column.name, ARROW_TYPES[column.dataType.simpleString()]) for column in schema]
    return pa.schema(columns)
