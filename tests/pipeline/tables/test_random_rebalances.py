"""Spark's table `rebalances` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a rebalance: the members of a group join again and get new partitions. An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
"""

import pytest

from pipeline.in_memory.rebalances import rebalances_of
from protocol.causes import RebalanceCause
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "broker", "started_us", "cause")


def test_rebalances_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Every reason occurs, with joined and removed members, and rebalances that were cut short."""
    rows = check_table(random_runs, "rebalances", rebalances_of, _KEY)
    reasons = {row["reason"] for row in rows}
    assert reasons == set(RebalanceCause)
    assert sum(row["new_generation"] is None for row in rows) > 20
    assert sum(row["joined_us"] is not None and row["stable_us"] is None for row in rows) > 10
    assert sum(row["store_error"] is not None for row in rows) > 5
    assert {row["client_reason"] is None for row in rows} == {True, False}
    assert any(set(row["removed"]) & set(row["added"]) for row in rows)
    assert any(row["consumer"] is None for row in rows)
