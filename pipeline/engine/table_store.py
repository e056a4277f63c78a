"""Stores, which compute the results of steps and keep them for later steps and for files.

A step computes a DataFrame. Its `result` says how to store the DataFrame:

- `table`: it is written into the directory of every run;
- `shared`: it is kept for later steps;
- `view`: it is not kept;
- `rows`: the driver (the Python process of the analysis) collects its rows.

The step's `filtered_by` is the column by which most readers of the result filter it.

A DataFrame is at first only a plan: Spark's description of how to compute its rows. The stores keep
the rows themselves, and later steps read these. So Spark plans only the newest step and computes
nothing twice. MemoryStore suits little data, FileStore any amount.
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
    """Computes the results of steps and keeps them. Several threads can use it at the same time."""

    @property
    def rows(self) -> dict[str, Sequence[Row]]:
        """The collected rows of steps whose result is `rows`, by the name of the step."""
        ...

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Store the result of a step; return the DataFrame that later steps read.

        A view is not stored, because each of its readers computes it.
        """
        ...

    def write_tables(self, runs: Sequence[RunFiles]) -> None:
        """Write each run's part of every table into its directory, even if the part has no rows."""
        ...

    def release(self) -> None:
        """Free the memory of the cached DataFrames.

        Ending the Spark session would free it, too, but the session can be the caller's and go on.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStore:
    """Keeps all results in memory. It is made for runs of a few 100,000 events on this machine.

    All rows are in one partition of Spark's data, so that no join, window or aggregation needs a
    shuffle (a redistribution of rows). The processors are busy because several steps run at the
    same time. The driver itself writes the files, because Hadoop's file system would start a
    process for each folder and each file.
    """

    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    _tables: dict[str, pa.Table] = field(default_factory=dict)
    _cached: list[DataFrame] = field(default_factory=list)
    """The DataFrames that `release` must free."""

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Store the result of a step; return the DataFrame that later steps read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
        if step.result in ("rows", "view"):
            return frame
        in_one_partition = frame.coalesce(1)
        if step.filtered_by is not None:
            # Spark caches rows in batches, and notes the least and greatest value of each column in
            # a batch. So a reader that wants certain values skips the batches that cannot hold
            # them. Sorting brings equal values into few batches. The sort is by hash, because
            # sorting strings takes longer.
            by_hash = in_one_partition.sortWithinPartitions(F.hash(step.filtered_by))
            stored = by_hash.persist()
            self._cached.append(stored)
            return stored
        # `localCheckpoint` keeps the rows, as `persist` does above, and also drops the plan by
        # which they were computed, so that the plans of later steps stay small. It is not eager,
        # because the first reader computes the rows anyway.
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

    Each run is in one partition of Spark's data. The keys of all joins, windows and aggregations
    begin with the run, so that none needs a shuffle. Results that do not fit in memory go to disk.
    A table is written to `folder` in few files, and the driver then splits the files by run. If
    Spark wrote a file for each run, Hadoop would start three processes for each file.
    """

    folder: Path
    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    files_per_table: int | None = None
    """Number of files of a table. With None, each partition is a file, and they are written in
    parallel.
    """
    _schemas: dict[str, StructType] = field(default_factory=dict)
    """Columns of each table, by its name."""
    _cached: list[DataFrame] = field(default_factory=list)
    """The DataFrames that `release` must free."""

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Store the result of a step; return the DataFrame that later steps read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
        if step.result in ("rows", "view"):
            return frame
        if step.filtered_by is not None:
            # `repartition` brings each run into one partition, once for all readers. The rows are
            # sorted for the same reason as in MemoryStore.
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
            # A table without rows has a file, too, from which readers learn its columns.
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
"""Settings that make each task move its own file to the final place, as soon as the file is
written. This is safe, because the driver reads the files only after the whole job has ended.
"""


def _split_by_run(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name and the rows of each run, in the order of the names."""
    # Spark's metadata in the schema describes the whole table; the parts do not need it.
    by_run = table.replace_schema_metadata(None).sort_by("run")
    # Run-end encoding: each name once (`values`), with the index behind its last row (`run_ends`).
    names = pc.run_end_encode(by_run["run"].combine_chunks())
    start = 0
    for name, end in zip(names.values.to_pylist(), names.run_ends.to_pylist(), strict=True):
        yield name, by_run.slice(start, end - start)
        start = end


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return Arrow's schema for the columns of a DataFrame."""
    columns = [(column.name, ARROW_TYPES[column.dataType.simpleString()]) for column in schema]
    return pa.schema(columns)
