"""Spark's table `client_phases` equals its oracle in plain Python (`pipeline.in_memory`).

A row is about a member and a fault, and has the phases in which the member found its new
coordinator: notice, rediscover, accept, join, sync.

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

from pipeline.in_memory.client_phases import client_phases_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "group", "consumer")


def test_client_phases_of_random_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: phases that were or were not needed; requests that wait, fail or have no answer."""
    rows = check_table(random_runs, "client_phases", client_phases_of, _KEY)
    assert len(rows) > 100
    phases = ("notice_us", "rediscover_us", "accept_us", "join_us", "sync_us", "longest_wait_us")
    for column in (*phases, "member_id", "member_id_after", "late_heartbeats", "noticed_by"):
        # More than five rows have a value in this column, and more than five have none.
        with_value = sum(row[column] is not None for row in rows)
        assert 5 < with_value < len(rows) - 5, column
    for column in ("stale_answers", "self_answers", "commit_timeouts", "late_heartbeats"):
        assert any(row[column] for row in rows), column
