"""Spark's table `coordinator_tenures` equals its oracle in plain Python (`pipeline.in_memory`).

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs; the columns `_KEY` identify a row. The assertions
after it make sure that the random runs have the cases that the docstring names. A number such as 3
in them has no other meaning than "more than a few".
"""

from collections import Counter

import pytest

from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("partition", "leader_epoch", "broker", "incarnation")


def test_coordinator_tenures_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Every kind of end occurs, and brokers that are paused, cut off, or restarted."""
    rows = check_table(random_runs, "coordinator_tenures", coordinator_tenures_of, _KEY)
    ends = Counter(row["end_reason"] for row in rows)
    assert all(ends[end] >= 2 for end in ("unloaded", "killed", "stopped", "run end")), ends
    assert ends["reloaded"]
    for column in ("overlap_us", "paused_us", "cut_us", "commits", "incarnation"):
        assert sum(row[column] > 0 for row in rows) >= 5, column
