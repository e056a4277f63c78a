"""Spark's table `broker_phases` equals its oracle in plain Python (`pipeline.in_memory`).

A row has the phases in which an offsets partition got a new coordinator after a fault: detect,
publish, load wait, load. An oracle is a second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
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
    missing = [row for row in rows if row["active_us"] is None or row["applied_us"] is None]
    assert len(missing) > 3
    assert any(row["old_leader"] == row["new_leader"] for row in rows)
    assert any(len(row["groups"]) > 1 for row in rows)
    assert any(row["load_us"] for row in rows)
