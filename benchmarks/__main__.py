"""`python -m benchmarks`: runs benchmarks, and writes their figures to docs/BENCHMARKS.md.

A part is a module with `run() -> tuple[Measurement, ...]`. Each part runs in a process of its own,
whose output, such as a profile that explains the figures, goes into the page. A new run of a part
(`--part`) replaces the part's section of the page; the other sections stay.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measurement import Measurement, commit, machine
from benchmarks.recorded_page import replace_section

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"
PARTS = (
    "virtual_loop",
    "virtual_seconds",
    "exploration",
    "compiled",
    "search_cost",
    "invariants_cost",
    "coordinator_core",
    "ray_link",
    "report",
    "shrinking",
    "effort",
    "many_runs",
    "wire",
)
LONG_PARTS = ("large_groups", "thousand_runs")
"""Parts that run only when they are named."""
MARKER = "measurements: "
"""Beginning of the last output line of a part's process, which has the measurements as JSON."""
HELP = f"default: every part but {', '.join(LONG_PARTS)}"
HEAD = """# Benchmarks

Written by `make bench`; do not edit. Trust ratios, not absolute figures: both sides of a
ratio were measured interleaved on a noisy machine.
"""


def run_one(part: str) -> tuple[str, tuple[Measurement, ...]]:
    """Run one benchmark; return its output and its measurements.

    Raises: RuntimeError with the output if the benchmark fails.
    """
    # The program of the part's process.
    code = (
        "import dataclasses, json\n"
        f"from benchmarks import {part}\n"
        f"results = {part}.run()\n"
        f"print({MARKER!r} + json.dumps([dataclasses.asdict(r) for r in results]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"benchmark {part} failed:\n{done.stdout}\n{done.stderr}")
    printed, _, data = done.stdout.rpartition(MARKER)
    return printed.strip(), tuple(Measurement(**entry) for entry in json.loads(data))


def section_of(part: str, printed: str, measurements: tuple[Measurement, ...]) -> str:
    """Return the section of one part in the page."""
    # The last column of the table, which has no heading, says whether the goal is met or missed.
    lines = [
        f"## {part}",
        "",
        f"Commit {commit()}; {machine()}.",
        "",
        "| figure | value | baseline | ratio | goal | |",
        "|---|---|---|---|---|---|",
    ]
    for figure in measurements:
        verdict = ""  # without a goal
        if figure.met is not None:
            verdict = "met" if figure.met else "**missed**"
        lines.append(
            f"| {figure.name} | {figure.value:,.4g} {figure.unit} "
            f"| {figure.baseline:,.4g} {figure.unit} ({figure.baseline_name}) "
            f"| {figure.ratio:.3g} | {figure.goal} | {verdict} |"
        )
    notes = [f"* {figure.name}: {figure.note}" for figure in measurements if figure.note]
    if notes:
        lines += ["", *notes]
    if printed:
        lines += ["", "```", printed, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the parts that the command line names, or PARTS."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, *LONG_PARTS), action="append", help=HELP)
    parts = parser.parse_args().part or PARTS
    print(machine())
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    for part in parts:
        printed, measurements = run_one(part)
        if printed:
            print(printed)
        for measurement in measurements:
            print(measurement.line())
        page = replace_section(page, part, section_of(part, printed, measurements))
        # Write after each part, so that the figures are not lost if a later part fails.
        PAGE.write_text(page, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
