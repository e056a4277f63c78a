"""The file with the summary of a run, beside its tables. With this file, a report needs no Spark.

The file also records the version of the tables, and the event files from which they were made. So
`is_current` finds out whether the tables have an older version, and whether the events have changed
since the tables were made.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pipeline.summary.figures import RunSummary

SUMMARY_FILE = "summary.json"
TABLES_VERSION = 7
"""Version of tables and figures. Whoever changes columns, or what they mean, must increase it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MadeFrom:
    """Version and sources of the tables.

    - `event_files`: number of rows of each file in the folder `events`; None for an unreadable
      file. The times of the files are not recorded, because a copy of the run has other times.
    - `tables`: names of the tables.
    """

    tables_version: int
    event_files: dict[str, int | None]
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamped:
    """The part of the file that is about its tables. All other keys are fields of RunSummary."""

    made_from: _MadeFrom


def summary_path(directory: Path) -> Path:
    """Return the path of the summary of the run in `directory`."""
    return directory / "tables" / SUMMARY_FILE


def write_summary(summary: RunSummary) -> None:
    """Write a summary into its run's directory, in one step.

    The tables must be complete, because other code takes the existence of the file as the sign that
    they are.
    """
    path = summary_path(summary.directory)
    path.parent.mkdir(exist_ok=True)
    made_from = _MadeFrom(
        tables_version=TABLES_VERSION,
        event_files=_event_files(summary.directory),
        tables=tuple(sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir())),
    )
    # The hook writes a Path as text. msgspec itself writes all other types.
    document = msgspec.to_builtins(summary, enc_hook=str)
    document["made_from"] = msgspec.to_builtins(made_from)
    # A reader sees the whole file or none, because `replace` is one step.
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    temporary.replace(path)


def read_summary(directory: Path) -> RunSummary | None:
    """Return the summary of the run in `directory`.

    Returns None without a summary, or if the summary has another version than TABLES_VERSION.

    The `directory` of the summary is the argument, because the run can have been moved since it was
    stored.
    """
    if _made_from(directory) is None:
        return None
    try:
        summary = decode_summary(summary_path(directory).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return replace(summary, directory=directory)


def encode_summary(summary: RunSummary) -> bytes:
    """Return a summary as JSON, for another process."""
    return msgspec.json.encode(summary, enc_hook=str)


def decode_summary(content: bytes) -> RunSummary:
    """Return the summary that `encode_summary` or `write_summary` wrote.

    Raises: msgspec.MsgspecError.
    """
    return msgspec.json.decode(content, type=RunSummary, dec_hook=_decode)


def is_current(directory: Path) -> bool:
    """Return whether the tables of a run can be used as they are.

    All of them must exist, have TABLES_VERSION, and be made from the event files that the run has
    now.
    """
    made_from = _made_from(directory)
    return (
        made_from is not None
        and made_from.event_files == _event_files(directory)
        and all((directory / "tables" / name).is_dir() for name in made_from.tables)
    )


def drop_summary(directory: Path) -> None:
    """Remove the summary of a run whose tables are about to be replaced."""
    summary_path(directory).unlink(missing_ok=True)


def _made_from(directory: Path) -> _MadeFrom | None:
    """Return version and sources of the tables; None if they do not have TABLES_VERSION."""
    try:
        content = summary_path(directory).read_bytes()
        made_from = msgspec.json.decode(content, type=_Stamped).made_from
    except (OSError, msgspec.MsgspecError):
        return None
    return made_from if made_from.tables_version == TABLES_VERSION else None


def _event_files(directory: Path) -> dict[str, int | None]:
    """Return the number of rows of each event file of a run; None for an unreadable file."""
    return {path.name: _rows(path) for path in sorted((directory / "events").glob("*"))}


def _rows(path: Path) -> int | None:
    """Return the number of rows in a Parquet file; None if it cannot be read."""
    # pyarrow is imported here, and not at the top, because its import takes long, and commands such
    # as `coordlab list` read summaries without it.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return None


def _decode(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's own signature
    """Return a Path from its text; msgspec decodes all other types without this function."""
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind} stands in no summary")
