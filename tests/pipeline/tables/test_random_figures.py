"""Spark's table `figures` equals its oracle in plain Python (`pipeline.in_memory`).

A row is one measure of a fault, such as the length of a phase, as a distribution. An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
"""

import pytest

from pipeline.in_memory.figures import figures_of
from pipeline.summary.figures import MEASURES
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "measure")


def test_figures_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Every measure occurs, with samples and without; percentiles are nearest ranks."""
    rows = check_table(random_runs, "figures", figures_of, _KEY)
    assert len(rows) > 500
    assert {row["measure"] for row in rows} == {measure.name for measure in MEASURES}
    assert any(row["samples"] == 0 for row in rows)
    assert any(row["samples"] and row["missing"] for row in rows)
    assert any(row["p50"] != row["max"] for row in rows)
