"""From run directories to one DataFrame of events, with what cannot be read set aside.

A run is named by the last two parts of its directory (`coordinator_crash/20260102-030405`), not
by what its rows say: two virtual runs of one seed write the same rows. The driver opens only the
footers of the event files; rows stay with Spark's workers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args, get_origin

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
"""What is read, whatever the files hold: a column that a file lacks is null."""

_REQUIRED = ("time_us", "seq", "node", "incarnation", "kind")
"""A file without these is no trace, and a row without them cannot be placed."""
_SINCE_CAUSES = "cause_text"
"""Traces without this column have a sentence in `cause`, which nobody reads any more."""
_KINDS = [kind.value for kind in TraceKind]


class RunNameClash(Exception):
    """Two run directories have the same last two parts; their tables could not be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The event files of one run and their `rows`; `unreadable` says of each set aside why."""

    run: str
    directory: Path
    events: tuple[Path, ...]
    rows: int
    unreadable: tuple[str, ...]


def run_name(directory: Path) -> str:
    """Return the name under which the run of `directory` stands in every table."""
    return "/".join(directory.resolve().parts[-2:])


def find_run_files(run_dirs: Iterable[Path]) -> tuple[RunFiles, ...]:
    """Look into run directories for event files, in the given order and each directory once.

    A torn or foreign Parquet file, as a killed driver leaves one, is set aside with its reason.
    Raises: RunNameClash.
    """
    found: dict[str, RunFiles] = {}
    for directory in dict.fromkeys(path.resolve() for path in run_dirs):
        name = run_name(directory)
        if name in found:
            raise RunNameClash(f"{found[name].directory} and {directory} are both called {name}")
        events: list[Path] = []
        unreadable: list[str] = []
        rows = 0
        for path in sorted((directory / "events").glob("*")):
            found_in = _inspect(path)
            if isinstance(found_in, str):
                unreadable.append(f"{path.name}: {found_in}")
            else:
                events.append(path)
                rows += found_in
        found[name] = RunFiles(
            run=name,
            directory=directory,
            events=tuple(events),
            rows=rows,
            unreadable=tuple(unreadable),
        )
    return tuple(found.values())


def _inspect(path: Path) -> int | str:
    """Return the number of an event file's rows, or why it cannot be read with EVENT_SCHEMA."""
    if path.suffix != ".parquet":
        return "not finished, or no Parquet file"
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        return f"not a whole Parquet file ({str(error).splitlines()[0]})"
    schema = metadata.schema.to_arrow_schema()
    missing = [name for name in _REQUIRED if name not in schema.names]
    if missing:
        return f"lacks {', '.join(missing)}"
    if _SINCE_CAUSES not in schema.names:
        return "written by an earlier version, whose causes are sentences"
    for name, kind in TRACE_COLUMNS:
        if name in schema.names and not _readable_as(schema.field(name).type, kind):
            return f"{name} is {schema.field(name).type}, not {kind}"
    return int(metadata.num_rows)


def _readable_as(found: pa.DataType, kind: str) -> bool:
    value = found.value_type if pa.types.is_dictionary(found) else found
    if kind == "string":
        return bool(
            pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_null(value)
        )
    return bool(value == pa.int32() or (kind == "int64" and value == pa.int64()))


def read_events(spark: SparkSession, runs: Sequence[RunFiles], *, held: bool = False) -> DataFrame:
    """Read the events of `runs`, bad rows included; see `good_events` and `bad_rows`.

    `held`: they will be kept in memory before they are joined or grouped. A single run is then
    named by a literal, a quarter of the reading; anywhere else the optimizer would take `run` for
    a constant and drop it from the keys of joins.
    Output grain: one row per traced event. Columns: those of protocol.trace.TraceRow (`time_us`,
    `node_time_us` in microseconds), where `run` is the directory's name, and `bad`: why the row
    cannot be used (null: it can).
    """
    paths = [spark_path(path) for run in runs for path in run.events]
    named = {run.run for run in runs if run.events}
    if not paths:
        nulls = [F.lit(None).cast(f.dataType).alias(f.name) for f in EVENT_SCHEMA]
        rows = spark.range(0).select(*nulls)
    else:
        # recursiveFileLookup keeps Spark from reading a folder called `a=b` as a column.
        reader = spark.read.schema(EVENT_SCHEMA).option("recursiveFileLookup", "true")
        one = held and len(named) == 1
        run = F.lit(*named) if one else run_of_file(r"/events/[^/]+$")
        rows = reader.parquet(*paths).withColumn("run", run)
    return rows.select(*EVENT_SCHEMA.names, _why_bad().alias("bad"))


def spark_path(path: Path) -> str:
    """Return a local path as Spark reads it: a pattern, so that its special characters escape."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))


def run_of_file(place: str) -> Column:
    """Return the run of the file that a row comes from: `.../<run><place>`, decoded.

    Shape: `place` is a pattern of what follows the run directory in the file's path.
    """
    encoded = F.regexp_extract(F.col("_metadata.file_path"), rf"([^/]+/[^/]+){place}", 1)
    return F.url_decode(F.replace(encoded, F.lit("+"), F.lit("%2B")))


def _why_bad() -> Column:
    missing = [F.when(F.col(name).isNull(), F.lit(f"no {name}")) for name in _REQUIRED]
    unknown = F.when(~F.col("kind").isin(_KINDS), F.lit("unknown kind"))
    return F.coalesce(*missing, unknown)


def good_events(rows: DataFrame) -> DataFrame:
    """Keep the rows of `read_events` that can be used.

    Grain and columns: those of `read_events`, without `bad`.
    """
    return rows.where(F.col("bad").isNull()).select(*EVENT_SCHEMA.names)


def bad_rows(rows: DataFrame) -> DataFrame:
    """Set aside the rows of `read_events` that cannot be used.

    Input grain: one row per traced event. Output grain: one row per event that has no time, place
    or known kind.
    Columns: `run`; `reason`; then `time_us` (microseconds on the run's clock), `node`,
    `incarnation`, `seq`, `kind` and `detail` as they came. Nulls: what the row lacks.
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
    """Keep the events of `kinds`; the filter reaches the Parquet reader."""
    return events.where(F.col("kind").isin([kind.value for kind in kinds]))


def detail(*fields: str, of: type[Detail] | tuple[type[Detail], ...]) -> Column:
    """Return `fields` of the `detail` column as a struct, typed as `of` declares them.

    Nulls: a field that is absent; the whole struct where `detail` is null; every field where it is
    no JSON object.
    """
    details = of if isinstance(of, tuple) else (of,)
    declared = {
        field.encode_name: field.type for each in details for field in msgspec.structs.fields(each)
    }
    schema = T.StructType([T.StructField(name, _detail_type(declared[name])) for name in fields])
    return F.from_json("detail", schema, {"mode": "PERMISSIVE"})


def _detail_type(annotation: object) -> T.DataType:
    """Return Spark's type of a detail's field: of `X`, `X | None` or `tuple[X, ...]`."""
    if get_origin(annotation) is tuple:
        return T.ArrayType(_detail_type(get_args(annotation)[0]))
    plain = {str: T.StringType(), int: T.LongType(), bool: T.BooleanType()}
    return next(plain[each] for each in (annotation, *get_args(annotation)) if each in plain)
