"""Spark's table `tenure_overlaps` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a time in which two brokers are active coordinators of an offsets partition. An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
"""

import pytest

from pipeline.in_memory.tenure_overlaps import tenure_overlaps_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = (
    "partition",
    "older_epoch",
    "older_broker",
    "older_incarnation",
    "newer_epoch",
    "newer_broker",
    "newer_incarnation",
)


def test_tenure_overlaps_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """In some overlaps both coordinators answer; for others no fault is known as the cause."""
    rows = check_table(random_runs, "tenure_overlaps", tenure_overlaps_of, _KEY)
    assert len(rows) > 20
    for column in ("older_heartbeats", "newer_heartbeats", "older_commits", "newer_commits"):
        assert any(row[column] for row in rows), column
    assert any(row["older_paused_us"] for row in rows)
    assert any(row["older_cut_us"] for row in rows)
    assert {row["fault"] is None for row in rows} == {True, False}
