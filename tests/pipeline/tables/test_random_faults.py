"""Spark's table `faults` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a fault that hit something, with its time in force and the nodes that it affected.

Spark's computation is fast for large runs, but hard to check by eye. The oracle is a second
computation of the same rows, with simple loops over the trace. `check_table` compares the two
tables of each run, for random traces and for a few real runs, and returns the rows of the random
traces. It compares each row of Spark's with the row of the oracle that has the same values in the
columns of `_KEY`.

A comparison says nothing about a case that does not occur. So the test then checks that the random
traces have each case in which the two tables could differ. A number in these assertions only means
that there are enough such rows.
"""

import pytest

from pipeline.in_memory.faults import faults_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault",)


def test_faults_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: times that are known or not, cuts of several nodes, and faults at the same time."""
    rows = check_table(random_runs, "faults", faults_of, _KEY)
    assert len(rows) > 60
    for column in ("in_force_us", "in_force_until_us", "healed_us"):
        # More than five rows have no value in this column, and more than five have one.
        unknown = sum(row[column] is None for row in rows)
        assert 5 < unknown < len(rows) - 5, column
    assert any(len(row["from_nodes"]) > 1 for row in rows)
    # `until_us` is the time at which the next fault hits. So if two faults hit at the same time,
    # the first has a time of length 0.
    assert any(row["until_us"] == row["injected_us"] for row in rows)
