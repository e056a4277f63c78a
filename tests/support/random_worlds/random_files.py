"""Writes random manifests and results of runs, and makes unusable rows of a trace.

The manifest of a run has its experiment, its seed and its runtime. The results have its verdict and
what each checker reported.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pipeline.in_memory.trace import TableRow
from protocol.trace import TraceRow

_CHECKS = ("fencing", "durable_commits", "generations", "ownership", "liveness", "processing")
_OUTCOMES = ("pass", "pass", "violated", "inconclusive", "nothing_seen")
"""Outcomes of a checker; "pass" is in the list twice, so it is drawn twice as often."""
_NEEDED = ("time_us", "seq", "node", "incarnation", "kind")
"""Columns without which a row cannot be used."""


def write_documents(directory: Path, seed: int) -> Path:
    """Write a random manifest.json and results.json; each may be cut off or missing."""
    rng = random.Random(seed)
    manifest = {
        "format": 1,
        "experiment": f"experiment {rng.randint(0, 9)}",
        "config": {"seed": "not this one", "runtime": {"name": "nor this"}},
        "seed": rng.choice((0, 7, 2**53, -1)),
        "runtime": rng.choice(("virtual", "ray")),
    }
    checks = rng.sample(_CHECKS, rng.choice((0, 1, 3, 6)))
    results = {
        "outcome": rng.choice(("completed", "interrupted")),
        "verdict": rng.choice(("pass", "violated", "unknown")),
        "checks": [_report(rng, check) for check in checks],
        "rows_seen": rng.randint(0, 9),
    }
    for name, document in (("manifest.json", manifest), ("results.json", results)):
        text = json.dumps(document, indent=rng.choice((None, 2)))
        # 10 % are cut off at a random character, 30 % are missing.
        fate = rng.random()
        if fate < 0.1:
            text = text[: rng.randint(0, len(text) - 1)]
        if fate < 0.7:
            (directory / name).write_text(text)
    return directory


def _report(rng: random.Random, check: str) -> dict[str, object]:
    """Return a random report of one checker; it lists at most two of its findings."""
    total = rng.choice((0, 0, 1, 250))
    return {
        "check": check,
        "outcome": rng.choice(_OUTCOMES),
        "findings": [{"summary": "told twice", "time_us": 5}] * min(total, 2),
        "findings_total": total,
        "seen": {"groups": 2},
        # JSON escapes the quotes and the newline of the second note.
        "note": rng.choice(("", 'no fault "on servers"\nmet a group')),
    }


def spoiled_rows(rows: Sequence[TraceRow], seed: int) -> list[TableRow]:
    """Return a trace's rows as cells of a file; 5 % of them lack a needed column.

    Instead of a missing kind some rows have an unknown one.
    """
    rng = random.Random(seed)
    spoiled = []
    for row in rows:
        cells = msgspec.structs.asdict(row)
        if rng.random() < 0.05:
            for name in rng.sample(_NEEDED, rng.randint(1, 2)):
                cells[name] = "no_such_kind" if name == "kind" and rng.random() < 0.5 else None
        spoiled.append(cells)
    return spoiled
