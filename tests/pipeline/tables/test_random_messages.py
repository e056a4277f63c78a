"""Spark's table `messages` equals its oracle in plain Python (`pipeline.in_memory`).

A row is an exchange around a fault: a request and its answer, if there is one. An oracle is a
second, simple computation of the same table.

The runs are random ones and a few real ones. `check_table` compares the two tables of each run, row
by row, and returns the rows of the random runs. The columns `_KEY` identify a row. The later
assertions make sure that these rows have the cases that the docstring names, because a comparison
without them would prove little. A small number in them, such as 3, only means "more than a few".
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
    """Answers are lost, correlation ids start again, clocks disagree, incarnations end."""
    rows = check_table(random_runs, "messages", messages_of, _KEY)
    assert len(rows) > 1_000
    for column in ("received_us", "answered_us", "ended_us", "named", "member"):
        unknown = sum(row[column] is None for row in rows)
        assert 50 < unknown < len(rows) - 50, column
    assert sum(row["repeats"] > 1 for row in rows) > 100
    outcomes = {row["outcome"] for row in rows}
    assert outcomes >= {"NONE", "no answer", "DISCONNECTED", "TIMED_OUT", "NOT_COORDINATOR"}


def test_messages_of_many_clients_equal_the_oracle(analysed: AnalysedRuns) -> None:
    """No random run has as many messages around a fault as the table keeps."""
    run = AnalysedRun(
        run="crowd/1",
        rows=tuple(crowd()),
        directory=analysed.directories["crowd"],
        is_random=True,
    )
    kept_per_fault = 400
    assert len(check_table([run], "messages", messages_of, _KEY)) == kept_per_fault
