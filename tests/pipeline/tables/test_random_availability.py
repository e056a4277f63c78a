"""Spark's table `availability` equals its oracle in plain Python (`pipeline.in_memory`).

A row is the gap (the time without service) of one member, partition or group around a fault. An
oracle is a second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
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
    """Subjects are members, partitions and groups; some never recover, some have no gap."""
    rows = check_table(random_runs, "availability", availability_of, _KEY)
    kinds = Counter((row["subject_kind"], row["after_us"] is None) for row in rows)
    assert all(
        kinds[kind, is_open] > 3
        for kind in ("member", "partition", "group")
        for is_open in (True, False)
    ), kinds
    assert sum(row["subject_kind"] == "group" and row["gap_us"] == 0 for row in rows) > 3
    assert sum(row["subject_kind"] == "group" and bool(row["gap_us"]) for row in rows) > 3
