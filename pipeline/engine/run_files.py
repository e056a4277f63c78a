"""Finds the event files of run directories, and tells the readable ones from the others.

A run is one execution of an experiment. The driver is the process that conducts the run and writes
its files. The name of a run is the last two parts of its directory
(`coordinator_crash/20260102-030405`). The rows in the files do not have the name, so that two
simulated runs with the same seed write equal rows. Of each file, this module reads only the Parquet
footer, which has the number of rows and the types of the columns. The module imports no Spark.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.trace import TRACE_COLUMNS

REQUIRED = ("time_us", "seq", "node", "incarnation", "kind")
"""Columns that every file must have; no row may have a null in them."""
_SINCE_CAUSES = "cause_text"
"""A column that older traces lack. Their column `cause` holds a sentence, which the tables cannot
use."""


class RunNameClash(Exception):
    """Two run directories have the same last two parts, which would be the name of both runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The event files of one run.

    - `run`: the name of the run.
    - `events`: the readable files; `rows`: the number of rows in all of them.
    - `unreadable`: for each unreadable file, a text with the file's name and the reason.
    """

    run: str
    directory: Path
    events: tuple[Path, ...]
    rows: int
    unreadable: tuple[str, ...]


def run_name(directory: Path) -> str:
    """Return the name that the run of `directory` has in every table."""
    return "/".join(directory.resolve().parts[-2:])


def find_run_files(run_dirs: Iterable[Path]) -> tuple[RunFiles, ...]:
    """Find the event files of run directories; return one RunFiles per directory, in their order.

    A directory that is given twice counts once. Files that a killed driver left incomplete go to
    `unreadable`, and so do files that are not part of a trace.
    Raises: RunNameClash.
    """
    files_by_run: dict[str, RunFiles] = {}
    # `fromkeys` drops a directory that is given twice, under whatever paths, and keeps the order.
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
    """Return the number of an event file's rows; if Spark cannot read it, return the reason."""
    # While a file is written, its name has another suffix.
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
    if _SINCE_CAUSES not in schema.names:
        return "written by an earlier version, whose causes are sentences"
    for name, kind in TRACE_COLUMNS:
        # A file can lack the columns that are not REQUIRED: Spark reads them as null.
        if name in schema.names and not _readable_as(schema.field(name).type, kind):
            return f"{name} is {schema.field(name).type}, not {kind}"
    return int(metadata.num_rows)


def _readable_as(column_type: pa.DataType, kind: str) -> bool:
    """Return whether a file's column can be read as `kind`.

    This is so for a column of type `kind`, also if it is dictionary-encoded. An int32 column can be
    read as int64, and a column that holds only nulls as string. `kind` is a type of TRACE_COLUMNS:
    string, int32 or int64.
    """
    value = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
    if kind == "string":
        return bool(
            pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_null(value)
        )
    return bool(value == pa.int32() or (kind == "int64" and value == pa.int64()))


def clock_error_us(directory: Path) -> int:
    """Return the largest difference between the clocks of the run's machines, in microseconds.

    Returns 0 if the manifest does not state it, or cannot be read.
    """
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
    except (OSError, ValueError):
        return 0
    value = manifest.get("clock_error_us") if isinstance(manifest, dict) else None
    return value if isinstance(value, int) else 0
