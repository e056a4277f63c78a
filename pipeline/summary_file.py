"""A run's summary as a file beside its tables, so that a report needs no Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pipeline.figures import RunSummary

SUMMARY_FILE = "summary.json"


def summary_path(directory: Path) -> Path:
    """Return where the summary of the run in `directory` stands."""
    return directory / "tables" / SUMMARY_FILE


def write_summary(summary: RunSummary) -> None:
    """Write a summary into its run's directory, in one step."""
    path = summary_path(summary.directory)
    temporary = path.with_name(f".{path.name}.tmp")
    content = msgspec.json.encode(summary, enc_hook=str)
    temporary.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
    temporary.replace(path)


def read_summary(directory: Path) -> RunSummary | None:
    """Return the summary of the run in `directory`; None if there is none that can be read.

    The directory in it is `directory`: runs are moved about.
    """
    try:
        content = summary_path(directory).read_bytes()
        summary = msgspec.json.decode(content, type=RunSummary, dec_hook=_decode)
    except (OSError, msgspec.MsgspecError):
        return None
    return replace(summary, directory=directory)


def _decode(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's own signature
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind} stands in no summary")
