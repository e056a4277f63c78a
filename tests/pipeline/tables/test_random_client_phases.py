"""Spark's table `client_phases` equals its oracle in plain Python (`pipeline.in_memory`).

A row has the phases in which a member found a new coordinator after a fault: notice, rediscover,
accept, join, sync. An oracle is a second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
"""

import pytest

from pipeline.in_memory.client_phases import client_phases_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "group", "consumer")


def test_client_phases_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Each phase occurs and is absent; requests wait, fail, or are never answered."""
    rows = check_table(random_runs, "client_phases", client_phases_of, _KEY)
    assert len(rows) > 100
    phases = ("notice_us", "rediscover_us", "accept_us", "join_us", "sync_us", "longest_wait_us")
    for column in (*phases, "member_id", "member_id_after", "late_heartbeats", "noticed_by"):
        with_value = sum(row[column] is not None for row in rows)
        assert 5 < with_value < len(rows) - 5, column
    for column in ("stale_answers", "self_answers", "commit_timeouts", "late_heartbeats"):
        assert any(row[column] for row in rows), column
