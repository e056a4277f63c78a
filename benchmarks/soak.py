"""`make soak`: the tests that need real default timeouts or many seeds, and their record.

A part is one or two modules in tests/soak, marked `soak`. A module's output lines that start with
"soak: " go into docs/SOAK.md as a section, with the commit. A new run of a part replaces its
sections; the other sections stay. An interrupted part continues where it was: its tests keep their
results in `.soak/` until the code changes (`--fresh` deletes these results).
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measurement import commit, machine
from benchmarks.recorded_page import replace_section

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "SOAK.md"
PARTS = {
    "experiments": ("experiments",),
    "bounce": ("bounce",),
    "explore": ("explore",),
    "mutants": ("mutants",),
    "sight": ("sight",),
    "storage": ("storage",),
    "summaries": ("summaries",),
    "clients": ("clients",),
    "local": ("local",),
    "zookeeper": ("zookeeper",),
    "ray": ("ray_shrunk", "ray"),
}
"""The modules of each part: `tests/soak/test_<module>.py`. The page has a section for each
module."""
KEPT = ROOT / ".soak"
"""Folder of the results of unfinished parts, with a folder for each part."""
HEAD = """# Soak

Written by `make soak`; do not edit. Tests that take too long for `make test`: every experiment with
Kafka's real default timeouts on Ray and in one process, many seeds in virtual time, planted bugs
that must be found, random crash points of the file storage. Each part can be run alone
(`make soak PART=ray`), and continues after an interruption. The minutes of a part do not include
results that an earlier, interrupted run had computed.
"""


def run_module(module: str) -> tuple[bool, str]:
    """Run one module; return whether it passed, and its section of the page."""
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "soak",
            "-s",
            "-q",
            "--timeout=3600",
            f"tests/soak/test_{module}.py",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    minutes = (time.monotonic() - began) / 60
    lines = [
        line.removeprefix("soak: ")
        for line in done.stdout.splitlines()
        if line.startswith("soak: ")
    ]
    # The last line of pytest's output is `=== 3 passed in 12.34s ===`.
    all_lines = done.stdout.strip().splitlines()
    totals = all_lines[-1].strip("= ") if all_lines else ""
    section = [
        f"## {module}",
        "",
        f"Commit {commit()}; {machine()}; {minutes:.1f} minutes; "
        f"{'passed' if done.returncode == 0 else '**failed**'} ({totals}).",
        "",
        *(f"* {line}" for line in lines),
    ]
    return done.returncode == 0, "\n".join(section).rstrip() + "\n"


def main() -> None:
    """Run the parts that the command line names, or every part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: every part")
    parser.add_argument("--fresh", action="store_true", help="forget what was computed before")
    arguments = parser.parse_args()
    parts = arguments.part or list(PARTS)
    if arguments.fresh:
        for part in parts:
            shutil.rmtree(KEPT / part, ignore_errors=True)
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    failed = []
    for part in parts:
        for module in PARTS[part]:
            passed, section = run_module(module)
            page = replace_section(page, module, section)
            PAGE.write_text(page, encoding="utf-8")
            if not passed:
                failed.append(module)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
