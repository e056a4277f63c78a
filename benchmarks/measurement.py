"""The result of a benchmark and its printed form: a ratio to a baseline of the same run."""

import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/SOAK.md", "docs/BENCHMARKS.md", "docs/PLANTED_BUGS.md", "docs/SIGHT.md")
"""Pages with the figures of benchmarks. A change of these pages is no change of the measured
code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One figure and its baseline.

    - `value`, `baseline`: medians of several rounds.
    - `ratio`: the median of the ratios of the rounds (`median_ratio`). It can differ a little from
      the ratio of `value` and `baseline`.
    - `goal`: a phrase such as "at least 0.6"; empty without a goal.
    - `met`: True if the goal is reached; None without a goal.
    """

    name: str
    value: float
    baseline: float
    unit: str
    baseline_name: str
    ratio: float
    goal: str = ""
    met: bool | None = None
    note: str = ""

    def line(self) -> str:
        """Return the figure as one line for the terminal."""
        goal = "" if self.met is None else f"  goal {self.goal}: {'met' if self.met else 'MISSED'}"
        return (
            f"{self.name}: {self.value:,.4g} {self.unit}, {self.baseline_name} "
            f"{self.baseline:,.4g} {self.unit}, ratio {self.ratio:.3g}{goal}"
        )


def median_ratio(values: Sequence[float], baselines: Sequence[float]) -> float:
    """Return the median of the ratios of each round.

    A round measures value and baseline one after the other, so that both see the same load of the
    machine.
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
    """Return the commit of a checkout, with "+changes" if files other than PAGES differ from it."""
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
