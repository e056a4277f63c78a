"""Spark's tables `felt_partitions` and `felt_groups` equal their oracles in plain Python.

The two tables show what the users of a group notice of a run: time without an owner, waiting
records (lag), repeated records, and members removed needlessly (`sent_away`). An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. Its last argument names the columns that identify a
row. The later assertions make sure that these rows have the cases that the docstring names.
"""

import pytest

from pipeline.in_memory.felt import felt_groups_of, felt_partitions_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_felt_partitions_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Some partitions have no owner for a while, waiting records, or records processed twice."""
    rows = check_table(random_runs, "felt_partitions", felt_partitions_of, ("group", "partition"))
    for column in ("unowned_us", "waited_us", "repeated", "lag_peak", "lag_over_us"):
        assert any(row[column] for row in rows), column
        assert any(row[column] == 0 for row in rows), column
    # Case: the lag did not come down to its usual size before the end of the run.
    assert any(row["lag_peak_us"] is not None and row["lag_over_us"] is None for row in rows)


def test_felt_groups_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Some groups have partitions that moved and returned, and members removed needlessly."""
    rows = check_table(random_runs, "felt_groups", felt_groups_of, ("group",))
    for column in ("partitions", "rebalances", "moved", "came_back", "sent_away"):
        assert any(row[column] for row in rows), column
    assert any(row["moved"] > row["came_back"] for row in rows)
