"""All runs whose tables and reports are tested, analysed together by Spark.

There are three kinds of runs: hand-written traces, called stories (tests/pipeline/traces), random
traces, and the runs that `report_runs` plays. An analysis makes tables from the trace of a run.
`analysed.table(run, name, columns)` reads a table by the columns that identify its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from pipeline.in_memory.trace import TableRow
from pipeline.run import analyze
from pipeline.summary.figures import FaultSummary, RunSummary
from protocol.trace import TraceKind
from tests.support.builders.trace_builder import parse_trace, read_table, write_events, write_run
from tests.support.random_worlds.random_files import spoiled_rows
from tests.support.random_worlds.random_runs import AnalysedRun, write_random_runs
from tests.support.random_worlds.random_trace import random_run
from tests.support.worlds.crowd import crowd
from tests.support.worlds.report_runs import make_runs

# The run's seed is 11. A reader must not find the seed within `config` instead.
_MANIFEST = '{"experiment": "talk", "runtime": "ray", "seed": 11, "config": {"seed": 3}}'
_RESULTS = """{
  "outcome": "completed",
  "verdict": "violated",
  "checks": [
    {"check": "fencing", "outcome": "nothing_seen", "findings_total": 0, "note": "no epoch moved"},
    {"check": "ownership", "outcome": "violated", "findings": [{"summary": "twice"}],
     "findings_total": 3, "seen": {"overlaps": 3}, "note": ""}
  ]
}"""
TRACES = Path(__file__).parents[2] / "pipeline" / "traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedRuns:
    """The runs that were analysed together, by name, and their summaries."""

    directories: dict[str, Path]
    summaries: dict[str, RunSummary]

    def table(self, run: str, name: str, *keys: str) -> dict[tuple[object, ...], TableRow]:
        """Return a table's rows by the given columns, which must identify them."""
        rows = read_table(self.directories[run], name)
        # Every row names the run; a table without rows is allowed.
        assert {row["run"] for row in rows} <= {self.summaries[run].run}
        by_key = {tuple(row[key] for key in keys): row for row in rows}
        assert len(by_key) == len(rows), f"{keys} do not tell the rows of {name} apart"
        return by_key

    def fault(self, run: str, name: str) -> FaultSummary:
        """Return the summary of one fault."""
        return next(fault for fault in self.summaries[run].faults if fault.fault == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The results of one analysis of all runs."""

    stories: AnalysedRuns
    """The hand-written runs of tests/pipeline/traces."""
    random: tuple[AnalysedRun, ...]
    """Runs with random traces, which no cluster played."""
    played: AnalysedRuns
    """The runs of `report_runs`, which were played."""


def analyse_together(spark: SparkSession, base: Path) -> Analysis:
    """Write the stories and random traces, play the runs of the reports, and analyse all of them.

    Spark's transforms compute the tables of all stories and random traces in a single call, because
    Spark needs longer to plan a call than to work on these rows. The runs of reports are so small
    that the analysis computes their tables with plain functions, without Spark's transforms.
    """
    stories = _write_stories(base / "stories")
    random_runs = write_random_runs(base / "random_runs")
    # A second path of the run `crash`, which must be analysed only once.
    second_path = stories["crash"] / "events" / ".."
    random_directories = [run.directory for run in random_runs]
    summaries = analyze(
        # With 0 no run counts as small, so that Spark's transforms read every run.
        [*stories.values(), second_path, *random_directories],
        spark=spark,
        whole_run_rows=0,
    )
    played = make_runs(base / "played")
    played_summaries = analyze(list(played.values()), spark=spark)
    return Analysis(
        stories=_with_summaries(stories, summaries[: len(stories)]),
        random=random_runs,
        played=_with_summaries(played, played_summaries),
    )


def _with_summaries(directories: dict[str, Path], summaries: Sequence[RunSummary]) -> AnalysedRuns:
    by_name = dict(zip(directories, summaries, strict=True))
    return AnalysedRuns(directories=directories, summaries=by_name)


def _write_stories(base: Path) -> dict[str, Path]:
    """Write every story as a run directory under `base`."""
    crash = parse_trace((TRACES / "crash.txt").read_text())
    pause = parse_trace((TRACES / "pause.txt").read_text())
    directories = {
        "crash": write_run(base / "crash" / "1", crash, files=2, clock_error_us=40_000),
        # A folder may have any name. Spark must not read its name as a pattern or as a column.
        "pause": write_run(base / "own [x] {y}=1+1" / "1", pause),
        "split": _write_story(base, "split"),
        "stuck": _write_story(base, "stuck"),
        "talk": _write_story(base, "talk"),
        "crowd": write_run(base / "crowd" / "1", crowd()),
        "spoiled": _spoiled_run(base / "spoiled" / "1"),
        # A run directory without events.
        "empty": base / "crash" / "2",
        "broken": _broken_run(base / "crash" / "3"),
    }
    directories["empty"].mkdir()
    # A manifest that was cut off in the middle.
    (directories["pause"] / "manifest.json").write_text('{"clock_err')
    (directories["talk"] / "manifest.json").write_text(_MANIFEST)
    (directories["talk"] / "results.json").write_text(_RESULTS)
    (directories["stuck"] / "results.json").write_text('{"verdict": "unknown", "checks": []}')
    return directories


def _write_story(base: Path, story: str) -> Path:
    """Write one story as a run directory, and return the directory."""
    return write_run(base / story / "1", parse_trace((TRACES / f"{story}.txt").read_text()))


def _spoiled_run(directory: Path) -> Path:
    """Write a random run with unusable rows all over it."""
    write_run(directory, [])
    write_events(directory / "events" / "0.parquet", spoiled_rows(random_run(0), seed=0))
    return directory


def _broken_run(directory: Path) -> Path:
    """Write a run without a fault whose rows and files are partly broken, as after a SIGKILL."""
    good = "1 broker-0 load_completed partition=__consumer_offsets-0 leader_epoch=0 records=1"
    write_run(directory, parse_trace(good))
    row = msgspec.structs.asdict(parse_trace(good)[0])
    write_events(
        directory / "events" / "bad.parquet",
        [
            row | {"seq": 1, "time_us": None},
            row | {"seq": 2, "kind": None},
            row | {"seq": 3, "kind": "no_such_kind"},
            row | {"seq": 4, "kind": "NO SUCH KIND"},
            row | {"seq": 5, "kind": TraceKind.NODE_STOPPED.value, "detail": '{"torn'},
        ],
    )
    (directory / "events" / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    (directory / "events" / ".part-1.parquet.unfinished").write_bytes(b"PAR1")
    return directory
