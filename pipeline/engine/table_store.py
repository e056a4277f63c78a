"""Where results go: to the steps that read them, to the driver, and in the end to the runs.

Two ways, one for little data and one for any amount. Both keep plans short, and compute nothing
twice.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipeline.engine.events import spark_path
from pipeline.engine.run_files import RunFiles
from pipeline.engine.step import Step

_RUN_KEY = "run_key"


class TableStore(Protocol):
    """Computes what a step describes; safe to use from several threads."""

    @property
    def rows(self) -> dict[str, Sequence[Row]]:
        """What the driver wanted, by the name of its step."""
        ...

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Compute a step, or leave it to those that read it; return what they shall read."""
        ...

    def hand_out(self, run: RunFiles) -> None:
        """Put a run's part of every table into its directory, also where it has no rows."""
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

    def hand_out(self, run: RunFiles) -> None:
        """Write a run's part of every table into its directory, also where it has no rows."""
        for name, table in self._tables.items():
            target = _emptied(run, name)
            target.mkdir()
            part = table.filter(pc.equal(table["run"], run.run))
            pq.write_table(part, target / "part-00000.parquet")

    def let_go(self) -> None:
        """Free what is held: the session may be the caller's."""
        for frame in self._held:
            frame.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    """Writes tables to `folder`, split by run, where later steps read them: for any amount."""

    spark: SparkSession
    folder: Path
    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    _schemas: dict[str, StructType] = field(default_factory=dict)

    def carry_out(self, step: Step, frame: DataFrame) -> DataFrame:
        """Compute a step, or leave it to those that read it; return what they shall read."""
        if step.result == "rows":
            self.rows[step.name] = frame.collect()
            return frame
        if step.result == "shared":
            return frame
        path = self.folder / step.name
        keyed = frame.withColumn(_RUN_KEY, F.md5("run"))
        keyed.repartition(_RUN_KEY).write.partitionBy(_RUN_KEY).parquet(f"file://{path}")
        self._schemas[step.name] = frame.schema
        reader = self.spark.read.schema(frame.schema).option("recursiveFileLookup", "true")
        return reader.parquet(spark_path(path))

    def hand_out(self, run: RunFiles) -> None:
        """Move a run's part of every table to its directory; an empty one where it has no rows."""
        key = hashlib.md5(run.run.encode(), usedforsecurity=False).hexdigest()
        for name, schema in self._schemas.items():
            part = self.folder / name / f"{_RUN_KEY}={key}"
            target = _emptied(run, name)
            if part.is_dir():
                shutil.move(part, target)
            else:
                target.mkdir()
                pq.write_table(_arrow_schema(schema).empty_table(), target / "part-empty.parquet")

    def let_go(self) -> None:
        """Nothing is held: everything is in files."""


def _emptied(run: RunFiles, name: str) -> Path:
    """Return where a run's table goes, cleared of an earlier analysis; its parent exists."""
    target = run.directory / "tables" / name
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    return target


def _arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([(field.name, _arrow_type(field.dataType)) for field in schema.fields])


def _arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column of ours; KeyError says that a table uses another."""
    return {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "array<string>": pa.list_(pa.string()),
    }[kind.simpleString()]
