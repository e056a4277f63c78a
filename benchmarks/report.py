"""How long it takes to write a report, and to open it in a browser.

Three things are measured:

1. The time that a browser needs for the report of a run with 1,000 members. There are three times:
   until the page is interactive (its first screen is drawn and the keyboard works), until every
   chart is drawn, and then for one zoom. (A zoom draws all charts on the common time axis again.)
   The run has ten groups of 100 members, a killed coordinator, and every message in its trace. The
   baseline is a page that has only Vega, the JavaScript library that draws the charts.
2. The size of this report, and the time to write it.
3. The time of the commands `analyze` and `report` for a run of `coordinator_crash`, each in a
   process of its own. The baseline is a process that starts Spark, counts to ten and ends.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from playwright.sync_api import Browser, Page
from rich.console import Console

from benchmarks.measurement import Measurement, median_ratio
from chaos.results.run_directory import PastRun
from coordlab.analysis import analyze_runs
from coordlab.report_facts import facts_of
from pipeline.report.build import build_report
from pipeline.report.charts.javascript import vega_javascript
from tests.support.harness.browser import chromium, draw_all, find_chromium, visit
from tests.support.worlds.report_runs import RECIPES, Recipe, make_run

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 7
"""Number of measurements of each figure, except for the commands."""
PROCESS_ROUNDS = 3
"""Number of measurements of the commands: fewer, because each measurement starts three processes.
"""
INTERACTIVE_S = 2.0
"""Goal: the longest time until a report is interactive."""
MADE_S = 30.0
"""Goal: the longest time of the commands `analyze` and `report` together."""
LARGEST_MB = 10.0
"""Goal: the largest size of a report."""
CRASH = Recipe(experiment="coordinator_crash")
"""A run of the experiment `coordinator_crash`: 12 members, and the broker of their group is
killed."""
BARE_SPARK = """
from pipeline.engine.session import spark_session
with spark_session(short_work=True) as spark:
    print(spark.range(10).count())
"""
"""Program of a process that starts Spark, counts to ten and ends."""
BARE_PAGE = """<!DOCTYPE html>
<html data-state="loading"><head><meta charset="utf-8"><title>Vega alone</title></head>
<body><script>{vega}</script><script>
requestAnimationFrame(() => requestAnimationFrame(() => {{
  performance.mark("coordlab-interactive");
  document.documentElement.dataset.state = "ready";
}}));
</script></body></html>
"""
"""A page without charts. `{vega}` is replaced by Vega's JavaScript.

Like a report, the page sets the mark `coordlab-interactive` after two animation frames. `_open`
reads the time of the mark.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The times of one opening of a page."""

    interactive_ms: float
    """The time from the start of the navigation until the page is interactive."""
    all_drawn_ms: float = 0.0
    """The time to draw every chart; 0 for a page without charts."""
    zoom_ms: float = 0.0
    """The time of one zoom; 0 for a page without charts."""


def run() -> tuple[Measurement, ...]:
    """Measure all figures, with runs in a temporary folder.

    Raises: RuntimeError if there is no Chromium, or if a command fails.
    """
    program = find_chromium()
    if program is None:
        raise RuntimeError("there is no Chromium on the PATH")
    with tempfile.TemporaryDirectory(prefix="coordlab-bench-") as folder:
        root = Path(folder)
        thousand, crash = (make_run(root, recipe) for recipe in (RECIPES["thousand"], CRASH))
        analyze_runs(Console(quiet=True), [thousand], master=None)
        report = build_report(thousand, facts_of(PastRun(thousand)))
        bare = root / "bare.html"
        bare.write_text(BARE_PAGE.format(vega=vega_javascript()), encoding="utf-8")
        return (
            *_measure_writing(thousand, report, bare),
            *_measure_opening(program, report, bare),
            _measure_commands(crash),
        )


def _measure_writing(directory: Path, report: Path, bare: Path) -> tuple[Measurement, ...]:
    """Measure the size of the report, and the time to write it."""
    facts = facts_of(PastRun(directory))
    written_s = [_seconds(lambda: build_report(directory, facts)) for _ in range(ROUNDS)]
    read_s = [_seconds(lambda: _read_all(directory / "tables")) for _ in range(ROUNDS)]
    size_mb, bare_mb = (path.stat().st_size / 1e6 for path in (report, bare))
    return (
        Measurement(
            name="report of 1,000 members: size",
            value=size_mb,
            baseline=bare_mb,
            unit="MB",
            baseline_name="Vega alone",
            ratio=size_mb / bare_mb,
            goal=f"under {LARGEST_MB:g} MB",
            met=size_mb < LARGEST_MB,
        ),
        Measurement(
            name="report of 1,000 members: writing it",
            value=statistics.median(written_s),
            baseline=statistics.median(read_s),
            unit="s",
            baseline_name="reading its tables",
            ratio=median_ratio(written_s, read_s),
            note="the very first report also bundles Vega's JavaScript, in about 3 s",
        ),
    )


def _measure_opening(program: Path, report: Path, bare: Path) -> tuple[Measurement, ...]:
    """Open the report and the bare page in a browser, in turn, and measure the times."""
    report_openings, bare_page_ms = [], []
    with chromium(program) as browser:
        _open(browser, bare, draws=False)  # fills the browser's caches and is not measured
        for _ in range(ROUNDS):
            report_openings.append(_open(browser, report, draws=True))
            bare_page_ms.append(_open(browser, bare, draws=False).interactive_ms)

    def against_bare(
        name: str, figure: Callable[[Opened], float], goal: str = "", met: bool | None = None
    ) -> Measurement:
        """Return one figure of the report in seconds, compared with opening the bare page."""
        values = [figure(page) / 1_000 for page in report_openings]
        baselines = [value / 1_000 for value in bare_page_ms]
        return Measurement(
            name=f"report of 1,000 members: {name}",
            value=statistics.median(values),
            baseline=statistics.median(baselines),
            unit="s",
            baseline_name="a page of Vega alone until interactive",
            ratio=median_ratio(values, baselines),
            goal=goal,
            met=met,
        )

    interactive_s = statistics.median(page.interactive_ms for page in report_openings) / 1_000
    return (
        against_bare(
            "until interactive",
            lambda page: page.interactive_ms,
            goal=f"at most {INTERACTIVE_S:g} s",
            met=interactive_s <= INTERACTIVE_S,
        ),
        against_bare("drawing every chart", lambda page: page.all_drawn_ms),
        against_bare("one zoom of every lane", lambda page: page.zoom_ms),
    )


def _open(browser: Browser, file: Path, *, draws: bool) -> Opened:
    """Open a page and return its times. Raises: RuntimeError if the page reports a problem."""
    with visit(browser, file) as visited:
        interactive_ms = float(
            visited.page.evaluate(
                "performance.getEntriesByName('coordlab-interactive')[0].startTime"
            )
        )
        if not draws:
            return Opened(interactive_ms=interactive_ms)
        all_drawn_ms = _seconds(lambda: draw_all(visited.page)) * 1_000
        zoom_ms = _seconds(lambda: _zoom(visited.page)) * 1_000
        if visited.problems:
            raise RuntimeError(f"{file.name}: {visited.problems[0]}")
        return Opened(interactive_ms=interactive_ms, all_drawn_ms=all_drawn_ms, zoom_ms=zoom_ms)


def _zoom(page: Page) -> None:
    """Zoom to seconds 2 to 8 of the run, and wait until every chart is drawn again."""
    page.evaluate(
        "async () => { await window.coordlab.setRange(2, 8); await window.coordlab.drawAll() }"
    )


def _measure_commands(crash: Path) -> Measurement:
    """Measure the commands `analyze` and `report` of coordinator_crash."""
    commands_s, bare_spark_s = [], []
    for _ in range(PROCESS_ROUNDS):
        commands_s.append(
            _run_python_s("-m", "coordlab", "analyze", str(crash))
            + _run_python_s("-m", "coordlab", "report", str(crash))
        )
        bare_spark_s.append(_run_python_s("-c", BARE_SPARK))
    return Measurement(
        name="coordinator_crash: analyze and report",
        value=statistics.median(commands_s),
        baseline=statistics.median(bare_spark_s),
        unit="s",
        baseline_name="starting Spark and ending it",
        ratio=median_ratio(commands_s, bare_spark_s),
        goal=f"at most {MADE_S:g} s",
        met=statistics.median(commands_s) <= MADE_S,
    )


def _run_python_s(*arguments: str) -> float:
    """Run Python with `arguments` to its end, and return the seconds.

    Raises: RuntimeError with the output if the process fails.
    """
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{arguments} failed:\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began


def _read_all(tables: Path) -> None:
    """Read all tables of a run. A table is a folder of Parquet files."""
    for table in sorted(tables.iterdir()):
        if table.is_dir():
            pq.read_table(table)


def _seconds(work: Callable[[], object]) -> float:
    """Call `work`, and return the seconds that this took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
