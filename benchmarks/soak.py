"""`make soak`: the tests that need real default timeouts or many seeds, and their record.

Each part is one module in tests/soak or two, marked `soak`. A module's printed lines that start
with "soak: " go into docs/SOAK.md as a section, beside the commit. A part's record is replaced when
it is run again; the others are kept. An interrupted part continues: results of this very code are
in `.soak/` (`--fresh` deletes them).
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
"""The modules of each part, `tests/soak/test_<module>.py`; a section of the page has its name."""
KEPT = ROOT / ".soak"
HEAD = """# Soak

Written by `make soak`; do not edit. What takes too long for `make test`: every experiment with
Kafka's real default timeouts on Ray and in one process, many seeds in virtual time, planted bugs
that must be found, random crash points of the file storage. Parts are run separately
(`make soak PART=ray`), and go on where they were after an interruption.
"""


def run_module(module: str) -> tuple[bool, str]:
    """Run one module and return whether it passed, and its record as a section of the page."""
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-m", "soak", "-s", "-q", "--timeout=3600"),
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
    lines = [line[6:] for line in done.stdout.splitlines() if line.startswith("soak: ")]
    closing = done.stdout.strip().splitlines()[-1].strip("= ") if done.stdout.strip() else ""
    section = [
        f"## {module}",
        "",
        f"Commit {commit()}; {machine()}; {minutes:.1f} minutes beside what was computed before; "
        f"{'passed' if done.returncode == 0 else '**failed**'} ({closing}).",
        "",
        *(f"* {line}" for line in lines),
    ]
    return done.returncode == 0, "\n".join(section).rstrip() + "\n"


def main() -> None:
    """Run one part, or all of them."""
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
