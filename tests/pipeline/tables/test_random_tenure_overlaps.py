"""Spark's table `tenure_overlaps` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a time in which two brokers coordinate the same offsets partition.

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
    """Cases: overlaps in which both coordinators answer, and overlaps without a fault as cause."""
    rows = check_table(random_runs, "tenure_overlaps", tenure_overlaps_of, _KEY)
    assert len(rows) > 20
    for column in ("older_heartbeats", "newer_heartbeats", "older_commits", "newer_commits"):
        assert any(row[column] for row in rows), column
    assert any(row["older_paused_us"] for row in rows)
    assert any(row["older_cut_us"] for row in rows)
    assert {row["fault"] is None for row in rows} == {True, False}
