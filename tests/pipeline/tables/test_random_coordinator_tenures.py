"""Spark's table `coordinator_tenures` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a tenure: the time in which one broker is the active coordinator of an offsets partition.
An oracle is a second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
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
