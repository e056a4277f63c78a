"""Spark's table `figures` equals its oracle in plain Python (`pipeline.in_memory`).

A row is one measure of one fault, such as the length of the phase `detect`, as a distribution over
all members, partitions or groups.

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

from pipeline.in_memory.figures import figures_of
from pipeline.summary.figures import MEASURES
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "measure")


def test_figures_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: every measure, with and without samples, and medians that are not the maximum."""
    rows = check_table(random_runs, "figures", figures_of, _KEY)
    assert len(rows) > 500
    assert {row["measure"] for row in rows} == {measure.name for measure in MEASURES}
    assert any(row["samples"] == 0 for row in rows)
    assert any(row["samples"] and row["missing"] for row in rows)
    assert any(row["p50"] != row["max"] for row in rows)
