"""The table `verdicts` in plain Python: the outcome of each check, from the run's JSON files.

A check looks for one sort of broken promises (properties that Kafka must keep) in a run.
`pipeline.tables.verdicts` computes the same with Spark.
"""

import json
from pathlib import Path
from typing import Any

from pipeline.in_memory.trace import TableRow


def verdicts_of(directory: Path) -> list[TableRow]:
    """Return one row per check of the run in `directory`, from its JSON files."""
    manifest = _document(directory / "manifest.json")
    results = _document(directory / "results.json")
    if manifest is None and results is None:
        return []
    of_run = {name: (manifest or {}).get(name) for name in ("runtime", "seed", "experiment")}
    of_run["verdict"] = (results or {}).get("verdict")
    # A run without any check has one row, in which the columns about a check are null. The empty
    # dict makes this row.
    checks = (results or {}).get("checks") or [{}]
    return [
        of_run
        | {
            "check": check.get("check"),
            "outcome": check.get("outcome"),
            "findings": check.get("findings_total"),
            "note": check.get("note"),
        }
        for check in checks
    ]


def _document(path: Path) -> dict[str, Any] | None:  # Any: what JSON holds
    """Return a document; {} if the file is incomplete, None if there is no file."""
    if not path.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except ValueError:  # the run broke off while it wrote the file
        return {}
    return document
