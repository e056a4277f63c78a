"""Spark's table `ownership` equals its oracle in plain Python (`pipeline.in_memory`).

A row is the time in which one member owns a partition.

Spark's computation is fast for large runs, but hard to check by eye. The oracle is a second
computation of the same rows, with simple loops over the trace. `check_table` compares the two
tables of each run, for random traces and for a few real runs, and returns the rows of the random
traces. It compares each row of Spark's with the row of the oracle that has the same values in the
columns of `_KEY`.

A comparison says nothing about a case that does not occur. So the test then checks that the random
traces have each case in which the two tables could differ.
"""

from collections import Counter

import pytest

from pipeline.in_memory.ownership import ownership_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "partition", "consumer", "incarnation", "from_us")


def test_ownership_of_random_runs_equals_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: every kind of end; coordinators and positions that the trace tells or does not."""
    rows = check_table(random_runs, "ownership", ownership_of, _KEY)
    ends = Counter(row["ended_by"] for row in rows)
    every_end = ("revoked", "lost", "reassigned", "killed", "stopped", "run end")
    assert all(ends[end] for end in every_end), ends
    assert {row["position"] for row in rows} == {"committed", "earliest", "latest", None}
    assert {row["leader_epoch"] is None for row in rows} == {True, False}
    assert any(row["paused_us"] for row in rows)
    assert any(row["incarnation"] for row in rows)
