"""Spark's table `messages` equals its oracle in plain Python (`pipeline.in_memory`).

A row is a request around a fault, with its answer if there is one.

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

from pipeline.in_memory.messages import messages_of
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table
from tests.support.worlds.analysed_runs import AnalysedRuns
from tests.support.worlds.crowd import crowd

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_KEY = ("fault", "api", "from_node", "to_node", "group", "sent_us", "correlation_id")


def test_messages_of_random_runs_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: requests without an answer, times that were not traced, several equal requests."""
    rows = check_table(random_runs, "messages", messages_of, _KEY)
    assert len(rows) > 1_000
    for column in ("received_us", "answered_us", "ended_us", "named", "member"):
        # More than 50 rows have no value in this column, and more than 50 have one.
        unknown = sum(row[column] is None for row in rows)
        assert 50 < unknown < len(rows) - 50, column
    assert sum(row["repeats"] > 1 for row in rows) > 100
    outcomes = {row["outcome"] for row in rows}
    assert outcomes >= {"NONE", "no answer", "DISCONNECTED", "TIMED_OUT", "NOT_COORDINATOR"}


def test_messages_of_many_clients_equal_the_oracle(analysed: AnalysedRuns) -> None:
    """The table keeps at most 400 messages around a fault; no random run has as many.

    `crowd` makes the trace of a run with many clients and one fault.
    """
    run = AnalysedRun(
        run="crowd/1",
        rows=tuple(crowd()),
        directory=analysed.directories["crowd"],
        is_random=True,  # `check_table` returns only the rows of random runs
    )
    kept_per_fault = 400
    assert len(check_table([run], "messages", messages_of, _KEY)) == kept_per_fault
