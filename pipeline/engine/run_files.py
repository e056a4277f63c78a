"""Finds the files of the traces in run directories, and tells which of them can be read.

A run writes its trace as Parquet files into the folder `events` of its directory. If it was killed,
its last file is not whole. So each file is inspected before Spark gets it. This reads only the
file's footer, which has the number of rows and the types of the columns. This module imports no
Spark.

A run is named after the last two parts of its directory: `coordinator_crash/20260102-030405`. This
name is not in the files, because two simulated runs with the same seed must write equal files.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.trace import TRACE_COLUMNS

REQUIRED = ("time_us", "seq", "node", "incarnation", "kind")
"""Columns that every file must have. A row with a null in one of them is bad."""
_NEW_COLUMN = "cause_text"
"""A column that traces of an earlier version do not have. In those traces, the column `cause` had a
sentence, which the tables cannot use."""


class RunNameClash(Exception):
    """Two run directories have the same last two parts, so both runs would have the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The event files of one run.

    - `run`: the name of the run.
    - `events`, `rows`: the readable files, and how many rows they have in all.
    - `unreadable`: a text for each file that cannot be read, with its name and the reason.
    """

    run: str
    directory: Path
    events: tuple[Path, ...]
    rows: int
    unreadable: tuple[str, ...]


def run_name(directory: Path) -> str:
    """Return the name of the run in `directory`. Every table uses this name for the run."""
    return "/".join(directory.resolve().parts[-2:])


def find_run_files(run_dirs: Iterable[Path]) -> tuple[RunFiles, ...]:
    """Return the files of the run in each directory, in the order of the directories.

    A directory that is given twice counts once.
    Raises: RunNameClash if two runs would have the same name.
    """
    files_by_run: dict[str, RunFiles] = {}
    # `fromkeys` drops repeated directories and keeps the order.
    for directory in dict.fromkeys(path.resolve() for path in run_dirs):
        name = run_name(directory)
        if name in files_by_run:
            raise RunNameClash(
                f"{files_by_run[name].directory} and {directory} are both called {name}"
            )

        events: list[Path] = []
        unreadable: list[str] = []
        rows = 0
        for path in sorted((directory / "events").glob("*")):
            rows_or_reason = _inspect(path)
            if isinstance(rows_or_reason, str):
                unreadable.append(f"{path.name}: {rows_or_reason}")
            else:
                events.append(path)
                rows += rows_or_reason

        files_by_run[name] = RunFiles(
            run=name,
            directory=directory,
            events=tuple(events),
            rows=rows,
            unreadable=tuple(unreadable),
        )
    return tuple(files_by_run.values())


def _inspect(path: Path) -> int | str:
    """Return the number of a file's rows, or the reason why Spark cannot read the file."""
    # While a file is being written, its name has another suffix.
    if path.suffix != ".parquet":
        return "not finished, or no Parquet file"

    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        return f"not a whole Parquet file ({str(error).splitlines()[0]})"

    schema = metadata.schema.to_arrow_schema()
    missing = [name for name in REQUIRED if name not in schema.names]
    if missing:
        return f"lacks {', '.join(missing)}"
    if _NEW_COLUMN not in schema.names:
        return "written by an earlier version, whose causes are sentences"
    for name, kind in TRACE_COLUMNS:
        # A file need not have the columns that are not REQUIRED. Spark reads missing columns as
        # null.
        if name in schema.names and not _readable_as(schema.field(name).type, kind):
            return f"{name} is {schema.field(name).type}, not {kind}"
    return int(metadata.num_rows)


def _readable_as(column_type: pa.DataType, kind: str) -> bool:
    """Return whether a file's column can be read as `kind`: string, int32 or int64.

    The type of the column need not be the same. It can be dictionary-encoded, an int32 column can
    be read as int64, and a column that has only nulls can be read as string.
    """
    value = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
    if kind == "string":
        return bool(
            pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_null(value)
        )
    return bool(value == pa.int32() or (kind == "int64" and value == pa.int64()))


def clock_error_us(directory: Path) -> int:
    """Return how far the clocks of the run's machines were apart, in microseconds.

    The run wrote this number into its manifest. Returns 0 if the manifest does not have it.
    """
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
    except (OSError, ValueError):
        return 0
    value = manifest.get("clock_error_us") if isinstance(manifest, dict) else None
    return value if isinstance(value, int) else 0
