"""`make soak`: the tests that need real default timeouts or many seeds, and their record.

Each part is a module in tests/soak, marked `soak`; what a part says of itself (lines that start
with "soak: ") goes into docs/SOAK.md, beside the commit. A part's record is replaced when it is run
again; the others stay.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measurement import commit, machine

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "SOAK.md"
PARTS = ("virtual", "ray")
HEAD = """# Soak

Written by `make soak`; do not edit. Runs with Kafka's real default timeouts on Ray, and many seeds
in virtual time: what takes too long for `make test`.
"""


def run_part(part: str) -> tuple[bool, str]:
    """Run one part and return whether it passed, and its record as a section of the page."""
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-m", "soak", "-s", "-q", "--timeout=3600"),
            f"tests/soak/test_{part}.py",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    minutes = (time.monotonic() - began) / 60
    said = [line[6:] for line in done.stdout.splitlines() if line.startswith("soak: ")]
    closing = done.stdout.strip().splitlines()[-1].strip("= ") if done.stdout.strip() else ""
    section = [
        f"## {part}",
        "",
        f"Commit {commit()}; {machine()}; {minutes:.1f} minutes; "
        f"{'passed' if done.returncode == 0 else '**failed**'} ({closing}).",
        "",
        *(f"* {line}" for line in said),
    ]
    return done.returncode == 0, "\n".join(section).rstrip() + "\n"


def replace_section(page: str, part: str, section: str) -> str:
    """Return `page` with the section of `part` replaced, or added at its end."""
    pattern = re.compile(rf"^## {re.escape(part)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: section + "\n", page).rstrip() + "\n"
    return page.rstrip() + "\n\n" + section


def main() -> None:
    """Run one part, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: every part")
    parts = parser.parse_args().part or list(PARTS)
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    failed = []
    for part in parts:
        passed, section = run_part(part)
        page = replace_section(page, part, section)
        PAGE.write_text(page, encoding="utf-8")
        if not passed:
            failed.append(part)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
