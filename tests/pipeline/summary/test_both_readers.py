"""The summary from a trace in memory against the one from Spark's tables: they prove each other."""

from pathlib import Path

import pytest

from pipeline.in_memory import summary as in_memory
from pipeline.in_memory.summary import summarize_directory, summarize_rows
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import read_summary
from tests.support.builders.trace_builder import write_run
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.random_worlds.random_trace import random_run
from tests.support.worlds.analysed_runs import Analysis


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_summary_in_memory_of_random_runs_is_sparks(random_runs: tuple[AnalysedRun, ...]) -> None:
    """One definition of each figure: whoever reads a run, the closing summary says the same."""
    found = [in_memory_and_spark(run.directory) for run in random_runs]
    assert all(mine == sparks for mine, sparks in found), first_difference(found)
    summaries = [mine for mine, _ in found]
    assert len(summaries) > 30
    assert sum(len(summary.faults) for summary in summaries) > 50
    assert any(fault.rebalances for summary in summaries for fault in summary.faults)
    for part in ("coordinators", "owners", "processing", "commit_errors"):
        assert any(getattr(summary, part) for summary in summaries), part


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_summary_in_memory_of_told_and_played_runs_is_sparks(analysis: Analysis) -> None:
    """Torn files, rows without a time, no events at all, clocks that differ: both say so."""
    directories = [*analysis.told.directories.values(), *analysis.played.directories.values()]
    readable = [each for each in directories if summarize_directory(each) is not None]
    assert 0 < len(directories) - len(readable) < len(readable)  # a torn one is left to Spark
    found = [in_memory_and_spark(directory) for directory in readable]
    assert all(mine == sparks for mine, sparks in found), first_difference(found)
    summaries = [mine for mine, _ in found]
    assert any(summary.bad_rows for summary in summaries)
    assert any(summary.unreadable for summary in summaries)
    assert any(summary.clock_error_us for summary in summaries)
    assert any(not summary.events for summary in summaries)


def test_summary_of_rows_is_that_of_the_files_they_are_written_to(tmp_path: Path) -> None:
    """Whoever plays many seeds has the rows in hand, and needs no files."""
    rows = random_run(2)
    directory = write_run(tmp_path / "talk" / "1", rows, files=3, clock_error_us=250)
    found = summarize_rows(
        list(reversed(rows)), run="talk/1", directory=directory, clock_error_us=250
    )
    assert found == summarize_directory(directory)
    assert found.events == len(rows)
    assert found.faults


def test_run_with_too_many_rows_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run must not fill the memory: a trace has no upper bound."""
    rows = random_run(2)
    directory = write_run(tmp_path / "talk" / "1", rows)
    monkeypatch.setattr(in_memory, "MAX_ROWS", len(rows) - 1)
    assert summarize_directory(directory) is None
    monkeypatch.setattr(in_memory, "MAX_ROWS", len(rows))
    assert summarize_directory(directory) is not None


def in_memory_and_spark(directory: Path) -> tuple[RunSummary, RunSummary]:
    """Return the summary of a run by both readers."""
    mine, sparks = summarize_directory(directory), read_summary(directory)
    assert mine is not None
    assert sparks is not None
    return mine, sparks


def first_difference(found: list[tuple[RunSummary, RunSummary]]) -> str:
    """Say which run's summaries differ, and in what."""
    for mine, sparks in found:
        for name in RunSummary.__slots__:
            one, other = getattr(mine, name), getattr(sparks, name)
            if one != other:
                return f"{mine.run}: {name} is {one} in memory, {other} in Spark"
    return ""
