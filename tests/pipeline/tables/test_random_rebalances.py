"""Spark's table `rebalances` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a rebalance of a group, with its reason.

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

from pipeline.in_memory.rebalances import rebalances_of
from protocol.causes import RebalanceCause
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "broker", "started_us", "cause")


def test_rebalances_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: every reason, members that joined or were removed, rebalances that were cut short."""
    rows = check_table(random_runs, "rebalances", rebalances_of, _KEY)
    reasons = {row["reason"] for row in rows}
    assert reasons == set(RebalanceCause)
    assert sum(row["new_generation"] is None for row in rows) > 20
    assert sum(row["joined_us"] is not None and row["stable_us"] is None for row in rows) > 10
    assert sum(row["store_error"] is not None for row in rows) > 5
    assert {row["client_reason"] is None for row in rows} == {True, False}
    # A member was removed, and joined again in the same rebalance.
    assert any(set(row["removed"]) & set(row["added"]) for row in rows)
    # No member caused the rebalance.
    assert any(row["consumer"] is None for row in rows)
