"""Spark's table `availability` equals its oracle in plain Python (`pipeline.in_memory`).

A row is the gap, the time without service, of one member, partition or group around a fault.

Spark's computation is fast for large runs, but hard to check by eye. The oracle is a second
computation of the same rows, with simple loops over the trace. `check_table` compares the two
tables of each run, for random traces and for a few real runs, and returns the rows of the random
traces. It compares each row of Spark's with the row of the oracle that has the same values in the
columns of `_KEY`.

A comparison says nothing about a case that does not occur. So the test then checks that the random
traces have each case in which the two tables could differ. A number in these assertions only means
that there are enough such rows.
"""

from collections import Counter

import pytest

from pipeline.in_memory.availability import availability_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "subject_kind", "group", "subject")


def test_availability_of_random_runs_equals_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: members, partitions and groups that recover or never do, and groups without a gap."""
    rows = check_table(random_runs, "availability", availability_of, _KEY)
    numbers = Counter((row["subject_kind"], row["after_us"] is None) for row in rows)
    for kind in ("member", "partition", "group"):
        for never_recovered in (True, False):
            assert numbers[kind, never_recovered] > 3, numbers
    # A group that always had a coordinator has a gap of length 0.
    assert sum(row["subject_kind"] == "group" and row["gap_us"] == 0 for row in rows) > 3
    assert sum(row["subject_kind"] == "group" and bool(row["gap_us"]) for row in rows) > 3
