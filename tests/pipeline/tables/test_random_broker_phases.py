"""Spark's table `broker_phases` equals its oracle in plain Python (`pipeline.in_memory`).

A row is about an offsets partition and a fault, and has the phases in which the partition got a new
coordinator: detect, publish, load wait, load.

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

from pipeline.in_memory.broker_phases import broker_phases_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "partition")


def test_broker_phases_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: a missing phase, the old leader elected again, a partition with several groups."""
    rows = check_table(random_runs, "broker_phases", broker_phases_of, _KEY)
    assert len(rows) > 40
    incomplete = [row for row in rows if row["active_us"] is None or row["applied_us"] is None]
    assert len(incomplete) > 3
    assert any(row["old_leader"] == row["new_leader"] for row in rows)
    assert any(len(row["groups"]) > 1 for row in rows)
    assert any(row["load_us"] for row in rows)
