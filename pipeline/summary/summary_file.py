"""The file `tables/summary.json` of a run. With this file, commands show figures without Spark.

An analysis with Spark takes a while, so its tables and its summary are kept in the run's directory.
They are outdated if a new version of coordlab computes other tables, or if the run has written more
events since. The file therefore also says which version made the tables, and from which event
files. `is_current` compares this with the present version and files.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pipeline.summary.figures import RunSummary

SUMMARY_FILE = "summary.json"
TABLES_VERSION = 7
"""Version of the tables and figures. If you change columns, or what they mean, increase it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MadeFrom:
    """How the tables of a run were made.

    - `event_files`: the number of rows of each file in the folder `events`, by the file's name;
      None for an unreadable file. The number tells whether a file has changed. The modification
      time of the file would not do, because a copy of the run's directory has other times.
    - `tables`: names of the tables.
    """

    tables_version: int
    event_files: dict[str, int | None]
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithMadeFrom:
    """The key `made_from` of the file. All its other keys are fields of RunSummary."""

    made_from: _MadeFrom


def summary_path(directory: Path) -> Path:
    """Return the path of the summary of the run in `directory`."""
    return directory / "tables" / SUMMARY_FILE


def write_summary(summary: RunSummary) -> None:
    """Write a summary into its run's directory.

    The tables must have been written before, because `is_current` takes this file as the proof that
    the tables are complete.
    """
    path = summary_path(summary.directory)
    path.parent.mkdir(exist_ok=True)
    made_from = _MadeFrom(
        tables_version=TABLES_VERSION,
        event_files=_event_files(summary.directory),
        tables=tuple(sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir())),
    )
    # msgspec calls `enc_hook` for types that it cannot write itself. In a summary, only Path is
    # such a type, and `str` makes a text of it.
    document = msgspec.to_builtins(summary, enc_hook=str)
    document["made_from"] = msgspec.to_builtins(made_from)
    # Another process may read the file at any time. `replace` happens in one step, so the other
    # process sees the old file or the new file, and never a part.
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    temporary.replace(path)


def read_summary(directory: Path) -> RunSummary | None:
    """Return the summary of the run in `directory`; None if it has no summary of TABLES_VERSION.

    The run may have been moved since its summary was written. So the field `directory` of the
    returned summary is the argument, and not what the file says.
    """
    if _made_from(directory) is None:
        return None
    try:
        summary = decode_summary(summary_path(directory).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return replace(summary, directory=directory)


def encode_summary(summary: RunSummary) -> bytes:
    """Return a summary as JSON, so that it can be sent to another process."""
    return msgspec.json.encode(summary, enc_hook=str)


def decode_summary(content: bytes) -> RunSummary:
    """Return the summary that `encode_summary` or `write_summary` made.

    Raises: msgspec.MsgspecError if the content is not a summary.
    """
    return msgspec.json.decode(content, type=RunSummary, dec_hook=_decode)


def is_current(directory: Path) -> bool:
    """Return whether the tables of a run can be used as they are, so that it needs no new analysis.

    This is so if all tables exist, if they have TABLES_VERSION, and if they were made from the same
    event files that the run has now.
    """
    made_from = _made_from(directory)
    return (
        made_from is not None
        and made_from.event_files == _event_files(directory)
        and all((directory / "tables" / name).is_dir() for name in made_from.tables)
    )


def drop_summary(directory: Path) -> None:
    """Remove the summary of a run whose tables are about to be replaced.

    Without a summary, no command takes the tables to be complete while only some of them are new.
    """
    summary_path(directory).unlink(missing_ok=True)


def _made_from(directory: Path) -> _MadeFrom | None:
    """Return how the tables of a run were made.

    Returns None if the run has no readable summary file, or if the tables have another version than
    TABLES_VERSION.
    """
    try:
        content = summary_path(directory).read_bytes()
        made_from = msgspec.json.decode(content, type=_WithMadeFrom).made_from
    except (OSError, msgspec.MsgspecError):
        return None
    return made_from if made_from.tables_version == TABLES_VERSION else None


def _event_files(directory: Path) -> dict[str, int | None]:
    """Return the number of rows of each event file of a run, by the file's name."""
    return {path.name: _row_count(path) for path in sorted((directory / "events").glob("*"))}


def _row_count(path: Path) -> int | None:
    """Return the number of rows in a Parquet file; None if it cannot be read."""
    # pyarrow is imported here, and not at the top, because its import takes long. Commands that
    # only read summaries, such as `coordlab list`, do without it.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return None


def _decode(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's own signature
    """Return a Path from its text. msgspec calls this for types that it cannot decode itself."""
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind} stands in no summary")
