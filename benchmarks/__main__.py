"""`python -m benchmarks`: runs every benchmark in a process of its own, writes docs/BENCHMARKS.md.

Each benchmark is a module with `run() -> tuple[Measurement, ...]`; it may print what explains its
figures (a profile, say), and what it prints goes into the page.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measurement import Measurement, commit, machine

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"
MODULES = ("virtual_loop", "virtual_seconds", "ray_link")
MARKER = "measurements: "


def run_one(module: str) -> tuple[str, tuple[Measurement, ...]]:
    """Run one benchmark module and return what it printed and measured.

    Raises: RuntimeError if it fails, with its output.
    """
    code = (
        "import dataclasses, json\n"
        f"from benchmarks import {module}\n"
        f"results = {module}.run()\n"
        f"print({MARKER!r} + json.dumps([dataclasses.asdict(r) for r in results]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"benchmark {module} failed:\n{done.stdout}\n{done.stderr}")
    printed, _, data = done.stdout.rpartition(MARKER)
    return printed.strip(), tuple(Measurement(**entry) for entry in json.loads(data))


def page(sections: list[tuple[str, str, tuple[Measurement, ...]]]) -> str:
    """Return docs/BENCHMARKS.md."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit. Trust ratios, not absolute figures: both sides of a",
        "ratio were measured interleaved in one process on a noisy machine.",
        "",
        f"Commit {commit()}; {machine()}.",
        "",
        "| figure | value | baseline | ratio | goal | |",
        "|---|---|---|---|---|---|",
    ]
    for _, _, measurements in sections:
        for m in measurements:
            verdict = "" if m.met is None else ("met" if m.met else "**missed**")
            lines.append(
                f"| {m.name} | {m.value:,.4g} {m.unit} | {m.baseline:,.4g} {m.unit}"
                f" ({m.baseline_name}) | {m.ratio:.3g} | {m.goal} | {verdict} |"
            )
    for module, printed, measurements in sections:
        notes = [f"* {m.name}: {m.note}" for m in measurements if m.note]
        if printed or notes:
            lines += ["", f"## {module}", "", *notes]
            if printed:
                lines += ["", "```", printed, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run them all."""
    argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__).parse_args()
    print(machine())
    sections = []
    for module in MODULES:
        printed, measurements = run_one(module)
        if printed:
            print(printed)
        for measurement in measurements:
            print(measurement.line())
        sections.append((module, printed, measurements))
    PAGE.write_text(page(sections), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
