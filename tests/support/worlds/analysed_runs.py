"""Analyse all runs whose tables and reports are tested, in a single session of Spark.

An analysis makes tables from the trace of a run (its recorded events). Because Spark is slow to
start a job, the tests share one analysis of all runs. There are three kinds of runs:

- stories: traces that were written by hand (tests/pipeline/traces);
- random traces, which no cluster has written;
- runs that `report_runs` plays.
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

# The seed of the run is 11. Code that reads the manifest must not take the seed within `config`.
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
    """Some runs after their analysis.

    In the tests a run has a name, such as "crash", which is the key of the two dicts.
    """

    directories: dict[str, Path]
    summaries: dict[str, RunSummary]

    def table(self, run: str, name: str, *keys: str) -> dict[tuple[object, ...], TableRow]:
        """Return the rows of a table by their values in the columns `keys`.

        `table("crash", "rebalances", "group", "generation")[("readers", 1)]` is the row of the
        group `readers` and generation 1. No two rows may have the same values in these columns.
        """
        rows = read_table(self.directories[run], name)
        # Every row names the run. `<=` is used because the table may be empty.
        assert {row["run"] for row in rows} <= {self.summaries[run].run}
        by_key = {tuple(row[key] for key in keys): row for row in rows}
        assert len(by_key) == len(rows), f"{keys} do not tell the rows of {name} apart"
        return by_key

    def fault(self, run: str, name: str) -> FaultSummary:
        """Return the summary of one fault."""
        return next(fault for fault in self.summaries[run].faults if fault.fault == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The results of the analysis of all runs."""

    # Runs with hand-written traces.
    stories: AnalysedRuns
    # Runs with random traces.
    random: tuple[AnalysedRun, ...]
    # The runs of `report_runs`.
    played: AnalysedRuns


def analyse_together(spark: SparkSession, base: Path) -> Analysis:
    """Write the stories and random traces, play the runs of `report_runs`, and analyse all runs.

    Spark computes the tables of all stories and random traces in a single call, because it needs
    longer to plan a call than to work on these few rows. The runs of `report_runs` are small, too.
    They are analysed like any small run: plain Python reads the trace.
    """
    stories = _write_stories(base / "stories")
    random_runs = write_random_runs(base / "random_runs")
    # Another path to the run `crash`, to test that the run is analysed only once.
    second_path_to_crash = stories["crash"] / "events" / ".."
    random_directories = [run.directory for run in random_runs]
    summaries = analyze(
        # With 0, no run counts as small. So Spark reads every run.
        [*stories.values(), second_path_to_crash, *random_directories],
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
    """Return runs with their summaries, which are in the same order as the directories."""
    by_name = dict(zip(directories, summaries, strict=True))
    return AnalysedRuns(directories=directories, summaries=by_name)


def _write_stories(base: Path) -> dict[str, Path]:
    """Write every story as a run's directory under `base`. Some of these runs are damaged."""
    crash = parse_trace((TRACES / "crash.txt").read_text())
    pause = parse_trace((TRACES / "pause.txt").read_text())
    directories = {
        "crash": write_run(base / "crash" / "1", crash, files=2, clock_error_us=40_000),
        # A folder may have any name. Spark must not take this name for a pattern or a column.
        "pause": write_run(base / "own [x] {y}=1+1" / "1", pause),
        "split": _write_story(base, "split"),
        "stuck": _write_story(base, "stuck"),
        "talk": _write_story(base, "talk"),
        "crowd": write_run(base / "crowd" / "1", crowd()),
        "spoiled": _spoiled_run(base / "spoiled" / "1"),
        # The directory of this run has no events.
        "empty": base / "crash" / "2",
        "broken": _broken_run(base / "crash" / "3"),
    }
    directories["empty"].mkdir()
    # This manifest was cut off in the middle.
    (directories["pause"] / "manifest.json").write_text('{"clock_err')
    (directories["talk"] / "manifest.json").write_text(_MANIFEST)
    (directories["talk"] / "results.json").write_text(_RESULTS)
    (directories["stuck"] / "results.json").write_text('{"verdict": "unknown", "checks": []}')
    return directories


def _write_story(base: Path, story: str) -> Path:
    """Write one story as a run's directory, and return the directory."""
    return write_run(base / story / "1", parse_trace((TRACES / f"{story}.txt").read_text()))


def _spoiled_run(directory: Path) -> Path:
    """Write a random run of which some rows cannot be used."""
    write_run(directory, [])
    write_events(directory / "events" / "0.parquet", spoiled_rows(random_run(0), seed=0))
    return directory


def _broken_run(directory: Path) -> Path:
    """Write a run in which some rows and files are broken, as in a run that was killed."""
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
