"""The table `verdicts` in plain Python: what each check of a run found, from the run's JSON files.

A check looks whether the cluster kept one of Kafka's promises, such as that no acknowledged commit
is lost. `pipeline.tables.verdicts` computes the same with Spark.
"""

import json
from pathlib import Path
from typing import Any

from pipeline.in_memory.trace import TableRow


def verdicts_of(directory: Path) -> list[TableRow]:
    """Return a row for each check of the run in `directory`.

    A run without checks has one row, in which the columns about a check are None. A run that has
    neither a manifest nor results has no row.
    """
    manifest = _document(directory / "manifest.json")
    results = _document(directory / "results.json")
    if manifest is None and results is None:
        return []
    manifest, results = manifest or {}, results or {}
    about_run = {name: manifest.get(name) for name in ("runtime", "seed", "experiment")}
    about_run["verdict"] = results.get("verdict")
    no_check: dict[str, Any] = {}
    checks = results.get("checks") or [no_check]
    return [
        about_run
        | {
            "check": check.get("check"),
            "outcome": check.get("outcome"),
            "findings": check.get("findings_total"),
            "note": check.get("note"),
        }
        for check in checks
    ]


def _document(path: Path) -> dict[str, Any] | None:  # Any: what JSON holds
    """Return the content of a JSON file; {} if it is not whole, None if there is no file."""
    if not path.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except ValueError:  # the run broke off while it wrote the file
        return {}
    return document
