"""Spark's table `ownership` equals its oracle in plain Python (`pipeline.in_memory`).

A row is the time in which one member owns a partition. An oracle is a second, simple computation of
the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little.
"""

from collections import Counter

import pytest

from pipeline.in_memory.ownership import ownership_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "partition", "consumer", "incarnation", "from_us")


def test_ownership_of_random_runs_equals_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Every kind of end occurs; coordinators, epochs and positions are known and unknown."""
    rows = check_table(random_runs, "ownership", ownership_of, _KEY)
    ends = Counter(row["ended_by"] for row in rows)
    wanted = ("revoked", "lost", "reassigned", "killed", "stopped", "run end")
    assert all(ends[end] for end in wanted), ends
    assert {row["position"] for row in rows} == {"committed", "earliest", "latest", None}
    assert {row["leader_epoch"] is None for row in rows} == {True, False}
    assert any(row["paused_us"] for row in rows)
    assert any(row["incarnation"] for row in rows)
