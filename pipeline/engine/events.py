"""Reads the traces of runs as one DataFrame, in which an event is one row.

A trace comes from a run that may have broken off, or from another version of coordlab. So some of
its rows may be bad: a required value is missing, or the kind is not known. `good_events` keeps all
other rows. Values that only some kinds of events have are stored as JSON in the column `detail`.
The function `detail` reads them.
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
"""The columns that are read from every file. A column that a file does not have is null."""

_KNOWN_KINDS = [kind.value for kind in TraceKind]


def read_events(spark: SparkSession, runs: Sequence[RunFiles], *, held: bool = False) -> DataFrame:
    """Read the events of `runs`, bad rows included; see `good_events` and `bad_rows`.

    The files do not have the name of the run. So the name is computed for each row from the path of
    the row's file. If there is only one run, a constant would be a quarter faster. But then Spark's
    optimizer would drop the constant from the keys of joins. It cannot do so if the rows are kept
    in memory before any join or aggregation, because then it does not see the constant. A caller
    that keeps the rows in this way sets `held` to True, and gets the constant.
    Output grain: one row per traced event. Columns: those of protocol.trace.TraceRow (`time_us`,
    `node_time_us` in microseconds), where `run` is `run_files.run_name`, and `bad`: the reason why
    the row cannot be used (null if it can).
    """
    paths = [spark_path(path) for run in runs for path in run.events]
    names = {run.run for run in runs if run.events}
    if not paths:
        # Spark cannot read an empty list of files. This makes a DataFrame without rows, but with
        # the columns.
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in EVENT_SCHEMA]
        rows = spark.range(0).select(*nulls)
    else:
        # recursiveFileLookup keeps Spark from reading a folder called `a=b` as a column.
        reader = spark.read.schema(EVENT_SCHEMA).option("recursiveFileLookup", "true")
        # Below the run directory, the path of a file has two parts: `events` and the file's name.
        run = run_of_file(depth=2)
        if held and len(names) == 1:
            run = F.lit(next(iter(names)))
        rows = reader.parquet(*paths).withColumn("run", run)
    return rows.select(*EVENT_SCHEMA.names, _why_bad().alias("bad"))


def spark_path(path: Path) -> str:
    """Return a path for Spark. Spark reads paths as patterns, so `*` or `[` must be escaped."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))


def run_of_file(depth: int) -> Column:
    """Return the name of the run from whose file a row was read, as `<experiment>/<run>`.

    `depth` is the number of parts that the file's path has below the run directory.
    """
    # The name of the run is in the two parts of the path before the last `depth` parts. This splits
    # the path at slashes: a regular expression would take half of the reading time.
    parts_of_name = 2
    from_name = F.substring_index(F.col("_metadata.file_path"), "/", -(parts_of_name + depth))
    run = F.substring_index(from_name, "/", parts_of_name)
    # Spark gives the path URL-encoded, but does not encode a plus sign. `url_decode` would turn the
    # plus sign into a space, so it is encoded here.
    decoded = F.url_decode(F.replace(run, F.lit("+"), F.lit("%2B")))
    return F.when(F.contains(run, F.lit("%")), decoded).otherwise(run)


def _why_bad() -> Column:
    """Return the reason why a row cannot be used, such as `no node`; null if it can be used."""
    missing = [F.when(F.col(name).isNull(), F.lit(f"no {name}")) for name in REQUIRED]
    # If `kind` is null, `unknown` is null, too, and the reason is `no kind`.
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
    """Keep the events of some kinds. Spark can filter rows by kind while it reads the files."""
    return events.where(F.col("kind").isin([kind.value for kind in kinds]))


def detail(*fields: str, of: type[Detail] | tuple[type[Detail], ...]) -> Column:
    """Return some fields of the JSON in the column `detail`, as a struct.

    `of` is the class that declares these fields, or several classes if the rows are of several
    kinds. Example: `detail("count", "last", of=RecordsConsumedDetail)`.
    Nulls: a field that is absent; the whole struct where `detail` is null; every field where
    `detail` is not a JSON object.
    """
    classes = of if isinstance(of, tuple) else (of,)
    # The name of a field in the JSON -> the type of the field.
    annotations = {
        field.encode_name: field.type
        for detail_class in classes
        for field in msgspec.structs.fields(detail_class)
    }
    schema = T.StructType([T.StructField(name, _spark_type(annotations[name])) for name in fields])
    # With PERMISSIVE, a damaged detail gives nulls, and does not make the whole analysis fail.
    return F.from_json("detail", schema, {"mode": "PERMISSIVE"})


def _spark_type(annotation: object) -> T.DataType:
    """Return Spark's type for a field annotated `X`, `X | None` or `tuple[X, ...]`."""
    if get_origin(annotation) is tuple:
        return T.ArrayType(_spark_type(get_args(annotation)[0]))
    spark_types = {str: T.StringType(), int: T.LongType(), bool: T.BooleanType()}
    # Of `X | None`, get_args returns X and None; of a plain X, it returns nothing.
    python_types = (annotation, *get_args(annotation))
    return next(spark_types[kind] for kind in python_types if kind in spark_types)
