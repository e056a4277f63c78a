"""How long `analyze` takes for many runs, compared with one scan of the same files.

The runs are copies of one run of the experiment `coordinator_crash`, each under another name. For
each number of runs, a new Spark session first scans all event files with one groupBy, and then
analyses the runs. `thousand_runs` does the same for 1,000 runs.
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measurement import Measurement
from pipeline.engine.events import spark_path
from pipeline.engine.run_files import find_run_files
from pipeline.run import analyze, session_for
from tests.support.worlds.report_runs import Recipe, make_run

SIZES = (10, 100)
"""Numbers of runs that are analysed together."""
GOAL_SIZE = 100
GOAL_RATIO = 8.0
"""Goal: the analysis of GOAL_SIZE runs takes at most GOAL_RATIO times as long as the scan."""
GOAL_GB = 4.0
"""Goal: the JVM always needs less memory than this."""
LINEAR_RATIO = 1.1
"""Goal: the time of the analysis grows linearly with the number of runs. For ten times as many
runs, it may take 11 times as long: 10 % more, because measurements are never exact.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """One analysis, and the scan before it."""

    runs: int
    rows: int
    scan_s: float
    analyze_s: float
    jvm_gb: float
    """The most memory that the JVM has used."""


def run() -> tuple[Measurement, ...]:
    """Measure SIZES."""
    return measure(SIZES)


def measure(sizes: Sequence[int]) -> tuple[Measurement, ...]:
    """Measure each number of runs, and the growth from each number to the next."""
    with tempfile.TemporaryDirectory(prefix="coordlab-bench-") as folder:
        root = Path(folder)
        played = make_run(root / "played", Recipe(experiment="coordinator_crash"))
        analyses = [_analyse(copy_runs(played, root / str(size), size)) for size in sizes]
    growth = [_growth(few, many) for few, many in pairwise(analyses)]
    return (*(_ratio(analysed) for analysed in analyses), *growth)


def copy_runs(played: Path, folder: Path, count: int) -> list[Path]:
    """Write `count` copies of a run below `folder`, and return their directories.

    Each copy has its own name, also in the rows of its files: the last two parts of its directory,
    such as `coordinator_crash/run-0007`.
    """
    events = {path.name: pq.read_table(path) for path in (played / "events").glob("*.parquet")}
    copies = []
    for number in range(count):
        copy = folder / played.parent.name / f"run-{number:04d}"
        (copy / "events").mkdir(parents=True)
        for document in played.glob("*.json"):
            shutil.copy(document, copy)
        for name, rows in events.items():
            column = rows.schema.get_field_index("run")
            named = pa.array([f"{copy.parent.name}/{copy.name}"] * rows.num_rows)
            pq.write_table(rows.set_column(column, "run", named), copy / "events" / name)
        copies.append(copy)
    return copies


def _analyse(directories: Sequence[Path]) -> Analysed:
    """Scan the event files of runs, then analyse the runs, in one new Spark session."""
    runs = find_run_files(directories)
    with session_for(runs) as spark:
        files = [spark_path(path) for run_files in runs for path in run_files.events]
        began = time.perf_counter()
        spark.read.parquet(*files).groupBy("run", "kind").count().collect()
        scanned = time.perf_counter()
        analyze(directories, spark=spark)
        ended = time.perf_counter()
        return Analysed(
            runs=len(runs),
            rows=sum(run_files.rows for run_files in runs),
            scan_s=scanned - began,
            analyze_s=ended - scanned,
            # PySpark starts the JVM as a child process, and talks to it through this gateway.
            jvm_gb=_most_memory_gb(spark.sparkContext._gateway.proc.pid),
        )


def _most_memory_gb(pid: int) -> float:
    """Return the most memory that a process has used so far; 0 if the system does not say it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    # VmHWM is the peak of the resident memory ("high water mark"), in kB.
    return next((int(line.split()[1]) / 1e6 for line in lines if line.startswith("VmHWM")), 0.0)


def _ratio(analysed: Analysed) -> Measurement:
    """Return the duration of an analysis, compared with its scan."""
    ratio = analysed.analyze_s / analysed.scan_s
    # Every analysis has the goal of GOAL_GB. Only the analysis of GOAL_SIZE runs also has the goal
    # of GOAL_RATIO.
    has_ratio_goal = analysed.runs == GOAL_SIZE
    fits = analysed.jvm_gb < GOAL_GB
    goal = f"under {GOAL_GB:g} GB"
    if has_ratio_goal:
        goal = f"at most {GOAL_RATIO:g}, {goal}"
    return Measurement(
        name=f"analyze of {analysed.runs:,} runs",
        value=analysed.analyze_s,
        baseline=analysed.scan_s,
        unit="s",
        baseline_name="a scan with one groupBy",
        ratio=ratio,
        goal=goal,
        met=fits and (ratio <= GOAL_RATIO or not has_ratio_goal),
        note=f"{analysed.rows:,} rows; the JVM held {analysed.jvm_gb:.1f} GB at most",
    )


def _growth(few: Analysed, many: Analysed) -> Measurement:
    """Return the growth of an analysis, compared with linear growth from a smaller one."""
    linear_s = few.analyze_s * many.runs / few.runs
    return Measurement(
        name=f"analyze from {few.runs:,} to {many.runs:,} runs",
        value=many.analyze_s,
        baseline=linear_s,
        unit="s",
        baseline_name="linear growth",
        ratio=many.analyze_s / linear_s,
        goal=f"at most {LINEAR_RATIO:g}",
        met=many.analyze_s <= LINEAR_RATIO * linear_s,
    )
