"""Spark's tables of runs, groups, bad rows, commits, requests, records and metrics.

Each table must equal its oracle: the same table, computed in plain Python with simple loops over
the trace (`pipeline/in_memory`). `check_table(runs, table, oracle, key)` compares the two tables of
each run, for random traces and for a few real runs, and returns the rows of the random traces. It
compares each row of Spark's with the row of the oracle that has the same values in the columns of
`key`.

A comparison says nothing about a case that does not occur. So each test then checks that the
returned rows have every case in which the two tables could differ.
"""

import pyarrow.parquet as pq
import pytest

from pipeline.in_memory.commits import commits_of
from pipeline.in_memory.metrics import metrics_of
from pipeline.in_memory.processing import processing_of
from pipeline.in_memory.runs import bad_rows_of, groups_of, runs_of
from pipeline.in_memory.zookeeper.coordinator_requests import coordinator_requests_of
from tests.support.builders.trace_builder import read_table
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table, differences
from tests.support.worlds.analysed_runs import AnalysedRuns

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_runs_of_random_traces_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """Cases: runs that were interrupted (not completed), and runs that never became steady."""
    no_key = ()  # the table of a run has a single row
    rows = check_table(random_runs, "runs", runs_of, no_key)
    assert {row["completed"] for row in rows} == {True, False}
    assert any(row["steady_us"] is None for row in rows)


def test_groups_of_random_traces_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """A row about the load of a group names the group's offsets partition.

    If the trace has no such row, the partition follows from the group's name.
    """
    rows = check_table(random_runs, "groups", groups_of, ("group",))
    assert len({row["partition"] for row in rows}) > 1
    assert len({row["consumers"] for row in rows}) > 1


def test_commits_of_random_traces_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """A commit of several partitions counts once; it counts as failed if one partition failed."""
    key = ("fault", "group", "consumer", "coordinator", "error")
    rows = check_table(random_runs, "commits", commits_of, key)
    assert {row["error"] for row in rows} >= {"NONE", "UNKNOWN_TOPIC_OR_PARTITION", "TIMED_OUT"}
    assert any(row["coordinator"] is None for row in rows)
    assert any(row["fault"] is None for row in rows)
    assert any(row["commits"] > 1 for row in rows)


def test_requests_of_coordination_equal_the_oracle(random_runs: tuple[AnalysedRun, ...]) -> None:
    """A row counts the requests of one client and one API in a tenth of a second."""
    key = ("group", "consumer", "incarnation", "api", "from_us")
    rows = check_table(random_runs, "coordinator_requests", coordinator_requests_of, key)
    assert {row["api"] for row in rows} >= {"JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"}
    assert any(row["requests"] > 1 for row in rows)


def test_processing_of_random_traces_equals_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: records that were processed again, and records that two owners processed."""
    rows = check_table(random_runs, "processing", processing_of, ("group", "partition", "consumer"))
    assert sum(row["repeated"] > 0 for row in rows) > 20
    assert any(row["shared"] for row in rows)


def test_metrics_of_random_and_real_runs_equal_the_oracle(
    random_runs: tuple[AnalysedRun, ...],
) -> None:
    """Cases: samples without a value, restarted processes, the metrics of real servers."""
    rows = check_table(
        random_runs, "metrics", metrics_of, ("node", "incarnation", "sampled_us", "metric")
    )
    assert sum(row["value"] is None for row in rows) > 50
    assert any(row["incarnation"] for row in rows)
    rows_of_real_runs = [
        row for run in random_runs if not run.is_random for row in run.table("metrics")
    ]
    metric_names = {row["metric"] for row in rows_of_real_runs}
    assert metric_names > {"NumGroups", "IsrShrinksPerSec.Count", "FencedBrokerCount"}
    assert any(row["value"] is None for row in rows_of_real_runs)


def test_bad_rows_of_a_damaged_trace_equal_the_oracle(analysed: AnalysedRuns) -> None:
    """The first reason of each incomplete row is recorded; the analysis uses the other rows."""
    directory = analysed.directories["spoiled"]
    written = pq.read_table(directory / "events").to_pylist()
    # Spark adds the run's name to each row; the oracle does not.
    expected = [row | {"run": "spoiled/1"} for row in bad_rows_of(written)]
    bad_rows = read_table(directory, "bad_rows")
    key = ("time_us", "node", "incarnation", "seq", "kind")
    assert differences(expected, bad_rows, key) == []
    # There are six reasons: one of five required columns is missing, or the kind is unknown.
    assert len({row["reason"] for row in bad_rows}) == 6
    (run,) = read_table(directory, "runs")
    assert run["events"] == len(written) - len(bad_rows)
