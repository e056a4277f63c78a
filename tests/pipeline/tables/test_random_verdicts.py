"""Spark's table `verdicts` equals its oracle, a second computation of the table in plain Python.

The table has a row for each check of a run. Its columns come from two files of the run:
manifest.json says what was run, and results.json what the checks found.
"""

import pytest

from pipeline.whole_runs.verdicts import verdicts_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import differences

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_verdicts_of_random_documents_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: files that are missing, cut off in the middle, or without checks."""
    rows = []
    for run in random_runs:
        expected = [row | {"run": run.run} for row in verdicts_of(run.directory)]
        rows_by_spark = run.table("verdicts")
        assert differences(expected, rows_by_spark, ("check",)) == []
        rows += rows_by_spark
    assert len(rows) > 40
    for column in ("check", "verdict", "experiment"):
        assert any(row[column] is None for row in rows), column
    # Some runs have no row.
    assert {run.run for run in random_runs} > {row["run"] for row in rows}
