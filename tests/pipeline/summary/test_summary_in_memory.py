"""The summary of a run, computed in plain Python.

Tests in tests/pipeline/whole_runs compare it with the summary that Spark computes.
"""

from pathlib import Path

import pytest

from pipeline.in_memory import summary as in_memory
from pipeline.in_memory.summary import summarize_directory, summarize_rows
from tests.support.builders.trace_builder import write_run
from tests.support.random_worlds.random_trace import random_run


def test_summary_of_rows_equals_that_of_their_files(tmp_path: Path) -> None:
    """A command that plays many runs has their rows in memory, and computes summaries from them.

    Each summary must be the same as if the rows were read from the files of the run.
    """
    rows = random_run(2)
    # The files have the rows in another order than `rows`, and below they are reversed. The clocks'
    # error comes from the manifest in one case, and from the argument in the other.
    directory = write_run(tmp_path / "talk" / "1", rows, files=3, clock_error_us=250)
    summary = summarize_rows(
        list(reversed(rows)), run="talk/1", directory=directory, clock_error_us=250
    )
    assert summary == summarize_directory(directory)
    assert summary.events == len(rows)
    assert summary.faults


def test_run_with_too_many_rows_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace has no upper bound, and must not fill the memory at the end of a run."""
    rows = random_run(2)
    directory = write_run(tmp_path / "talk" / "1", rows)
    monkeypatch.setattr(in_memory, "MAX_ROWS", len(rows) - 1)
    assert summarize_directory(directory) is None
    monkeypatch.setattr(in_memory, "MAX_ROWS", len(rows))
    assert summarize_directory(directory) is not None
    assert summarize_directory(directory, max_rows=len(rows) - 1) is None
    assert summarize_directory(directory, max_rows=len(rows)) is not None
