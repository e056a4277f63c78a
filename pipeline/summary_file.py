"""A run's summary as a file beside its tables, so that a report needs no Spark.

It also says what the tables were made from, so that tables of an older version, or of events that
have changed since, are known for what they are.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pipeline.figures import RunSummary

SUMMARY_FILE = "summary.json"
TABLES_VERSION = 1
"""Goes up when a table or a figure changes its columns or what they mean: docs/TABLES.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SummaryFile:
    """What is written.

    `event_files`: the names of the files in `events` that were read, with their bytes; times would
    not survive a copy. `tables`: the names of the tables beside it.
    """

    tables_version: int
    event_files: dict[str, int]
    tables: tuple[str, ...]
    summary: RunSummary


def summary_path(directory: Path) -> Path:
    """Return where the summary of the run in `directory` stands."""
    return directory / "tables" / SUMMARY_FILE


def write_summary(summary: RunSummary) -> None:
    """Write a summary into its run's directory, in one step, when its tables are complete."""
    path = summary_path(summary.directory)
    path.parent.mkdir(exist_ok=True)
    document = _SummaryFile(
        tables_version=TABLES_VERSION,
        event_files=_event_files(summary.directory),
        tables=tuple(sorted(each.name for each in path.parent.iterdir() if each.is_dir())),
        summary=summary,
    )
    temporary = path.with_name(f".{path.name}.tmp")
    content = msgspec.json.encode(document, enc_hook=str)
    temporary.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
    temporary.replace(path)


def read_summary(directory: Path) -> RunSummary | None:
    """Return the summary of the run in `directory`; None if there is none of this version.

    The directory in it is `directory`: runs are moved about.
    """
    document = _read(directory)
    return None if document is None else replace(document.summary, directory=directory)


def is_current(directory: Path) -> bool:
    """Return whether a run has all tables of this version, made of its events as they are."""
    document = _read(directory)
    return (
        document is not None
        and document.event_files == _event_files(directory)
        and all((directory / "tables" / name).is_dir() for name in document.tables)
    )


def drop_summary(directory: Path) -> None:
    """Remove the summary of a run whose tables are about to be replaced."""
    summary_path(directory).unlink(missing_ok=True)


def _read(directory: Path) -> _SummaryFile | None:
    try:
        content = summary_path(directory).read_bytes()
        document = msgspec.json.decode(content, type=_SummaryFile, dec_hook=_decode)
    except (OSError, msgspec.MsgspecError):
        return None
    return document if document.tables_version == TABLES_VERSION else None


def _event_files(directory: Path) -> dict[str, int]:
    found = sorted((directory / "events").glob("*"))
    return {path.name: path.stat().st_size for path in found if path.is_file()}


def _decode(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's own signature
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind} stands in no summary")
