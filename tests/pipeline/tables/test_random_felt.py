"""Spark's tables `felt_partitions` and `felt_groups` equal their oracles in plain Python.

The two tables show how a run affects the users of a group: for how long a partition had no owner,
how many records waited (the lag), how many were processed again, and how many members were removed
although they worked (`sent_away`).

Spark's computation is fast for large runs, but hard to check by eye. The oracle computes the same
rows with simple loops over the trace. `check_table` compares the two tables of each run, row by
row, for random traces and for a few real runs, and returns the rows of the random traces. The last
argument of `check_table` has the columns that tell which rows belong together. A comparison says
nothing about a case that does not occur. So each test then checks that the returned rows have every
case.
"""

import pytest

from pipeline.in_memory.felt import felt_groups_of, felt_partitions_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_felt_partitions_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: partitions with and without waiting, unowned time, or records processed again."""
    rows = check_table(random_runs, "felt_partitions", felt_partitions_of, ("group", "partition"))
    for column in ("unowned_us", "waited_us", "repeated", "lag_peak", "lag_over_us"):
        assert any(row[column] for row in rows), column
        assert any(row[column] == 0 for row in rows), column
    # The lag had a peak, and did not come down to its usual size before the end of the run.
    assert any(row["lag_peak_us"] is not None and row["lag_over_us"] is None for row in rows)


def test_felt_groups_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: each count is above 0 in some group; partitions that moved and never came back."""
    rows = check_table(random_runs, "felt_groups", felt_groups_of, ("group",))
    for column in ("partitions", "rebalances", "moved", "came_back", "sent_away"):
        assert any(row[column] for row in rows), column
    assert any(row["moved"] > row["came_back"] for row in rows)
