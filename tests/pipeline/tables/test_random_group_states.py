"""Spark's table `group_states` equals its oracle in plain Python (`pipeline.in_memory`).

A row is the time in which a group has one state (such as Stable) on one coordinator. An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
"""

import pytest

from pipeline.in_memory.group_states import group_states_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "broker", "incarnation", "from_us", "state")


def test_group_states_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Some groups have two coordinators at once, die with their broker, or return."""
    rows = check_table(random_runs, "group_states", group_states_of, _KEY)
    assert len(rows) > 500
    states = {row["state"] for row in rows}
    assert states == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
    assert any(row["to_us"] is None for row in rows)
    assert any(row["incarnation"] > 0 for row in rows)
    assert len({row["leader_epoch"] for row in rows}) > 3
