"""Spark's table `coordinator_tenures` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a tenure: the time in which one broker coordinates a partition of `__consumer_offsets`.

Spark's computation is fast for large runs, but hard to check by eye. The oracle is a second
computation of the same rows, with simple loops over the trace. `check_table` compares the two
tables of each run, for random traces and for a few real runs, and returns the rows of the random
traces. It compares each row of Spark's with the row of the oracle that has the same values in the
columns of `_KEY`.

A comparison says nothing about a case that does not occur. So the test then checks that the random
traces have each case in which the two tables could differ. A number in these assertions only means
that there are enough such rows.
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
    """Cases: every kind of end, and brokers that are paused, cut off, or restarted.

    A tenure ends with `reloaded` if the same broker loads the partition again, which is rare.
    """
    rows = check_table(random_runs, "coordinator_tenures", coordinator_tenures_of, _KEY)
    ends = Counter(row["end_reason"] for row in rows)
    assert all(ends[end] >= 2 for end in ("unloaded", "killed", "stopped", "run end")), ends
    assert ends["reloaded"]
    for column in ("overlap_us", "paused_us", "cut_us", "commits", "incarnation"):
        assert sum(row[column] > 0 for row in rows) >= 5, column
