"""Reads the event files of runs as one DataFrame. No function here starts a computation of Spark.

A run is one execution of an experiment. Its trace is a table in Parquet files; an event is one row
of the trace. The column `detail` holds further facts as JSON. A bad row cannot be used, because it
lacks a required column or has an unknown kind (`_why_bad`).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args, get_origin

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipeline.engine.run_files import REQUIRED, RunFiles
from protocol.trace import TRACE_COLUMNS, TraceKind
from protocol.trace_schema import Detail

_SPARK_TYPES: dict[str, T.DataType] = {
    "string": T.StringType(),
    "int64": T.LongType(),
    "int32": T.IntegerType(),
}
EVENT_SCHEMA = T.StructType(
    [T.StructField(name, _SPARK_TYPES[kind]) for name, kind in TRACE_COLUMNS]
)
"""Columns read from every file; a column that a file lacks is null."""

_KNOWN_KINDS = [kind.value for kind in TraceKind]
"""The kinds of events. A row of another kind is bad."""


def read_events(spark: SparkSession, runs: Sequence[RunFiles], *, held: bool = False) -> DataFrame:
    """Read the events of `runs`, bad rows included; see `good_events` and `bad_rows`.

    The files have no column `run`, so the path of each row's file gives it. If there is a single
    run, a constant would do, and would save a quarter of the reading time. But Spark's optimizer
    drops a constant `run` from the keys of joins. Only if the caller keeps the rows in memory
    before any join or aggregation does the optimizer not see the constant: then `held` must be
    True.
    Output grain: one row per traced event. Columns: those of protocol.trace.TraceRow (`time_us`,
    `node_time_us` in microseconds), where `run` is `run_files.run_name`, and `bad`: the reason why
    the row cannot be used (null if it can).
    """
    paths = [spark_path(path) for run in runs for path in run.events]
    names = {run.run for run in runs if run.events}
    if not paths:
        # Spark cannot read an empty list of files. `range(0)` has no rows, and `select` adds the
        # columns.
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in EVENT_SCHEMA]
        rows = spark.range(0).select(*nulls)
    else:
        # recursiveFileLookup keeps Spark from reading a folder called `a=b` as a column.
        reader = spark.read.schema(EVENT_SCHEMA).option("recursiveFileLookup", "true")
        is_single_run = held and len(names) == 1
        # The path of an event file has 2 parts below the run directory: `events` and the file's
        # name.
        run = F.lit(next(iter(names))) if is_single_run else run_of_file(2)
        rows = reader.parquet(*paths).withColumn("run", run)
    return rows.select(*EVENT_SCHEMA.names, _why_bad().alias("bad"))


def spark_path(path: Path) -> str:
    """Return a path for Spark, with the characters escaped that are special in Spark's patterns."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))


def run_of_file(depth: int) -> Column:
    """Return a column with the name of the run whose file a row comes from.

    The name is `<experiment>/<run>`, URL-decoded. `depth` is the number of parts of the file's path
    below the run directory.
    """
    # The last parts of the path are: experiment, run, and `depth` parts below the run directory.
    # Splitting at slashes is cheap; a regular expression would take half of the reading time.
    end = F.substring_index(F.col("_metadata.file_path"), "/", -(depth + 2))
    run = F.substring_index(end, "/", 2)
    # A plus sign in a path stands for itself, but url_decode would turn it into a space.
    decoded = F.url_decode(F.replace(run, F.lit("+"), F.lit("%2B")))
    return F.when(F.contains(run, F.lit("%")), decoded).otherwise(run)


def _why_bad() -> Column:
    """Return the reason why a row cannot be used, or null."""
    missing = [F.when(F.col(name).isNull(), F.lit(f"no {name}")) for name in REQUIRED]
    # A `kind` that is null makes this null, too: the row then has the reason "no kind".
    unknown = F.when(~F.col("kind").isin(_KNOWN_KINDS), F.lit("unknown kind"))
    return F.coalesce(*missing, unknown)


def good_events(rows: DataFrame) -> DataFrame:
    """Keep the rows of `read_events` that can be used.

    The grain and the columns are those of the input, except that the column `bad` is dropped.
    """
    return rows.where(F.col("bad").isNull()).drop("bad")


def bad_rows(rows: DataFrame) -> DataFrame:
    """Keep the rows of `read_events` that cannot be used, with the reason.

    `rows` has one row per traced event. Output grain: one row per event that lacks one of the
    REQUIRED columns, or has an unknown kind.
    Columns: `run`; `reason`; then `time_us` (microseconds on the run's clock), `node`,
    `incarnation`, `seq`, `kind` and `detail` as in the file. Nulls: columns that the row lacks.
    """
    return rows.where(F.col("bad").isNotNull()).select(
        "run",
        F.col("bad").alias("reason"),
        "time_us",
        "node",
        "incarnation",
        "seq",
        "kind",
        "detail",
    )


def of_kind(events: DataFrame, *kinds: TraceKind) -> DataFrame:
    """Keep the events of `kinds`. Spark applies this filter while it reads the Parquet files."""
    return events.where(F.col("kind").isin([kind.value for kind in kinds]))


def detail(*fields: str, of: type[Detail] | tuple[type[Detail], ...]) -> Column:
    """Return `fields` of the `detail` column as a struct, with the types that `of` declares.

    The column holds JSON. `of` is the class that declares its fields. It is several classes if the
    rows are of several kinds, whose details differ.
    Nulls: a field that is absent; the whole struct where `detail` is null; every field where
    `detail` is not a JSON object.
    """
    details = of if isinstance(of, tuple) else (of,)
    declared = {
        field.encode_name: field.type
        for kind_of_detail in details
        for field in msgspec.structs.fields(kind_of_detail)
    }
    schema = T.StructType([T.StructField(name, _detail_type(declared[name])) for name in fields])
    # With PERMISSIVE, a damaged detail gives nulls, and does not make the whole analysis fail.
    return F.from_json("detail", schema, {"mode": "PERMISSIVE"})


def _detail_type(annotation: object) -> T.DataType:
    """Return Spark's type for a field annotated `X`, `X | None` or `tuple[X, ...]`."""
    if get_origin(annotation) is tuple:
        return T.ArrayType(_detail_type(get_args(annotation)[0]))
    spark_types = {str: T.StringType(), int: T.LongType(), bool: T.BooleanType()}
    # Of `X | None`, get_args returns X and None; of a plain X, it returns nothing.
    python_types = (annotation, *get_args(annotation))
    return next(spark_types[kind] for kind in python_types if kind in spark_types)
