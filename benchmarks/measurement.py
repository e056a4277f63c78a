"""The result of a benchmark, and its printed form.

A benchmark measures a figure and a baseline in the same run, and reports their ratio.
"""

import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/SOAK.md", "docs/BENCHMARKS.md", "docs/PLANTED_BUGS.md", "docs/SIGHT.md")
"""Pages with the figures of benchmarks. If only these pages have changed since the last commit, the
measured code is still that of the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One figure and its baseline."""

    name: str
    value: float
    """The median of several rounds."""
    baseline: float
    """Also the median of several rounds."""
    unit: str
    baseline_name: str
    ratio: float
    """The median of the ratios of the rounds. The ratio of the two medians can be slightly
    different."""
    goal: str = ""
    """A phrase such as "at least 0.6"; empty without a goal."""
    met: bool | None = None
    """True if the goal is reached; None without a goal."""
    note: str = ""

    def line(self) -> str:
        """Return the figure as one line for the terminal."""
        goal = ""
        if self.met is not None:
            goal = f"  goal {self.goal}: {'met' if self.met else 'MISSED'}"
        return (
            f"{self.name}: {self.value:,.4g} {self.unit}, {self.baseline_name} "
            f"{self.baseline:,.4g} {self.unit}, ratio {self.ratio:.3g}{goal}"
        )


def median_ratio(values: Sequence[float], baselines: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds.

    A round measures value and baseline one after the other. So other programs on the machine slow
    both measurements down, and the ratio is nearly the same as without these programs.
    """
    return statistics.median(
        value / baseline for value, baseline in zip(values, baselines, strict=True)
    )


def machine() -> str:
    """Return the machine in one line: processor, cores, memory, Python."""
    model = platform.processor() or platform.machine()
    cores = 0  # stays 0 on a system without /proc/cpuinfo
    memory = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                cores += 1
        # The first line is `MemTotal: 16000000 kB`.
        kib = int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1])
        memory = f", {kib / 1024**2:.0f} GiB"
    except OSError:
        pass
    return f"{model}, {cores} cores{memory}, Python {platform.python_version()}"


def commit(root: Path = ROOT) -> str:
    """Return the commit of a checkout: `0123456789ab`, or `0123456789ab+changes`.

    `+changes` means that files other than PAGES differ from the commit.
    """
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        changed = subprocess.run(
            [
                "git",
                "status",
                "--porcelain",
                "--untracked-files=no",
                "--",
                ".",
                *(f":(exclude){page}" for page in PAGES),
            ],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+changes" if changed else head
