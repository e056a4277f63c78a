"""Spark's table `faults` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a fault that hit, with its time in force and the nodes that it affected. An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
"""

import pytest

from pipeline.in_memory.faults import faults_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault",)


def test_faults_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Faults that missed are left out; simultaneous ones are ordered by id."""
    rows = check_table(random_runs, "faults", faults_of, _KEY)
    assert len(rows) > 60
    for column in ("in_force_us", "in_force_until_us", "healed_us"):
        unknown = sum(row[column] is None for row in rows)
        assert 5 < unknown < len(rows) - 5, column
    assert any(len(row["from_nodes"]) > 1 for row in rows)
    assert any(row["until_us"] == row["injected_us"] for row in rows)
