"""Spark's table `ownership_overlaps` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a time in which two members of a group own the same partition.

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

from pipeline.in_memory.ownership_overlaps import ownership_overlaps_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("group", "partition", "first_consumer", "second_consumer", "from_us", "to_us")


def test_ownership_overlaps_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: overlaps that never end, without shared records, or before any fault or healing."""
    rows = check_table(random_runs, "ownership_overlaps", ownership_overlaps_of, _KEY)
    assert len(rows) > 60
    for column in ("to_us", "fault", "healed_us"):
        assert {row[column] is None for row in rows} == {True, False}, column
    assert {row["records_both"] > 0 for row in rows} == {True, False}
    assert any(row["first_epoch"] != row["second_epoch"] for row in rows)
