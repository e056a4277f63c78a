"""Damaged input for the analysis: files that are cut off or missing, and unusable rows of a trace.

Beside its trace (the recorded events), a run has two files. `manifest.json` says what was run: the
experiment, the seed and the runtime. `results.json` says how the run ended: the verdict, and the
report of each checker. The analysis must survive damaged files and rows. This module makes such
files and rows at random.
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
"""Outcomes of a checker. "pass" is listed twice, so it is drawn twice as often as the others."""
_NEEDED_COLUMNS = ("time_us", "seq", "node", "incarnation", "kind")
"""Columns without which the analysis cannot use a row."""


def write_documents(directory: Path, seed: int) -> Path:
    """Write a random manifest.json and results.json; each of them may be cut off or missing."""
    rng = random.Random(seed)
    manifest = {
        "format": 1,
        "experiment": f"experiment {rng.randint(0, 9)}",
        # The analysis must read the keys `seed` and `runtime` below, and not those within `config`.
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
        # 10 % are cut off at a random character, 60 % are whole, and 30 % are not written at all.
        fate = rng.random()
        is_cut_off = fate < 0.1
        is_written = fate < 0.7
        if is_cut_off:
            text = text[: rng.randint(0, len(text) - 1)]
        if is_written:
            (directory / name).write_text(text)
    return directory


def _report(rng: random.Random, check: str) -> dict[str, object]:
    """Return a random report of one checker.

    A checker counts all its findings in `findings_total`, and lists only the first ones.
    """
    total = rng.choice((0, 0, 1, 250))
    listed = min(total, 2)
    return {
        "check": check,
        "outcome": rng.choice(_OUTCOMES),
        "findings": [{"summary": "told twice", "time_us": 5}] * listed,
        "findings_total": total,
        "seen": {"groups": 2},
        # JSON escapes the quotes and the newline of the second note.
        "note": rng.choice(("", 'no fault "on servers"\nmet a group')),
    }


def spoiled_rows(rows: Sequence[TraceRow], seed: int) -> list[TableRow]:
    """Return a trace's rows as dicts (column -> value), and spoil 5 % of them.

    A spoiled row lacks one or two of the needed columns. Instead of having no kind, it may also
    have a kind that does not exist.
    """
    rng = random.Random(seed)
    spoiled = []
    for row in rows:
        cells = msgspec.structs.asdict(row)
        if rng.random() < 0.05:
            for column in rng.sample(_NEEDED_COLUMNS, rng.randint(1, 2)):
                cells[column] = None
                if column == "kind" and rng.random() < 0.5:
                    cells[column] = "no_such_kind"
        spoiled.append(cells)
    return spoiled
