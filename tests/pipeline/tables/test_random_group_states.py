"""Spark's table `group_states` equals its oracle in plain Python (`pipeline.in_memory`).

A row is the time in which a group has one state, such as Stable, on one coordinator.

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

from pipeline.in_memory.group_states import group_states_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "broker", "incarnation", "from_us", "state")


def test_group_states_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: every state, states without an end, brokers that restart, several leader epochs."""
    rows = check_table(random_runs, "group_states", group_states_of, _KEY)
    assert len(rows) > 500
    states = {row["state"] for row in rows}
    assert states == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
    assert any(row["to_us"] is None for row in rows)
    assert any(row["incarnation"] > 0 for row in rows)
    assert len({row["leader_epoch"] for row in rows}) > 3
