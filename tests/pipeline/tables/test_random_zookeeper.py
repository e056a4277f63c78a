"""The tables of ZooKeeper, and `offset_rewinds`, of random and real runs against plain Python.

`check_table` compares Spark's table with its oracle in `pipeline/in_memory`; the assertions after
it make sure that the rows have the cases that the docstring names; its last argument has the
columns that identify a row. Ids such as ZK-74 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md. An
attempt is one try of a consumer to own its share; after too many failed attempts the consumer gives
up. A rewind is a committed offset that is lower than the one before.
"""

import pytest

from pipeline.in_memory.zookeeper.tables import (
    offset_rewinds_of,
    zookeeper_attempts_of,
    zookeeper_operations_of,
    zookeeper_sessions_of,
    zookeeper_watches_of,
)
from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.comparison import check_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

Runs = tuple[AnalysedRun, ...]


def test_sessions_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Sessions are open, closed or expired; some delete nodes that other sessions created."""
    rows = check_table(random_runs, "zookeeper_sessions", zookeeper_sessions_of, ("session",))
    assert {row["end"] for row in rows} == {"expired", "closed", None}
    assert any(row["consumer"] is None for row in rows)
    # `deleted_of_others`: ephemeral nodes of other sessions that this one deleted.
    assert any(row["deleted_of_others"] and row["created"] for row in rows)
    # `learned_us`: when a server told the client that its session had expired.
    assert any(row["learned_us"] is not None for row in rows)
    assert any(len(row["servers"]) > 1 and row["disconnections"] for row in rows)
    assert any(row["consumer"] is not None and row["group"] is None for row in rows)


def test_watches_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Some watches fire for a change without a time, some have no later attempt."""
    key = ("server", "incarnation", "consumer", "fired_us")
    rows = check_table(random_runs, "zookeeper_watches", zookeeper_watches_of, key)
    assert any(row["changed_us"] is None for row in rows)
    assert any(row["lag_us"] for row in rows)
    assert any(row["attempt_us"] is None for row in rows)
    assert any(row["group"] is None for row in rows)


def test_attempts_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """An attempt is done, in conflict, failed, given up, or (None) ended by a consumer's death."""
    key = ("consumer", "incarnation", "started_us")
    rows = check_table(random_runs, "zookeeper_attempts", zookeeper_attempts_of, key)
    outcomes = {row["outcome"] for row in rows}
    assert outcomes == {"done", "no broker", "conflict", "exception", "shut down", None}
    assert {row["gave_up"] for row in rows} == {"starting", "running", "new session", None}
    assert any(row["given_up"] > 1 and row["conflicts"] > 1 and row["view"] for row in rows)
    assert any(row["incarnation"] for row in rows)


def test_operations_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """An operation reads, writes, or keeps the session; requests to brokers are no operations."""
    key = ("consumer", "incarnation", "api", "from_us")
    rows = check_table(random_runs, "zookeeper_operations", zookeeper_operations_of, key)
    assert {row["effect"] for row in rows} == {"read", "write", "session"}
    assert len({row["api"] for row in rows}) == 10
    assert any(row["requests"] > 1 for row in rows)


def test_rewinds_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Rewinds occur in both stores of offsets, by members and by clients without a member id."""
    key = ("group", "partition", "store", "at_us", "offset_after")
    rows = check_table(random_runs, "offset_rewinds", offset_rewinds_of, key)
    assert {row["store"] for row in rows} == {"kafka", "zookeeper"}
    assert {row["consumer"] is None for row in rows} == {True, False}


def test_late_release_shows_in_the_tables(random_runs: Runs) -> None:
    """A returning member deletes owner nodes of live ones; others give up (ZK-74, ZK-38)."""
    (run,) = (run for run in random_runs if run.run.startswith("zookeeper_late_release"))
    sessions = run.table("zookeeper_sessions")
    (silent,) = (row for row in sessions if row["end"] == "expired")
    assert silent["ended_us"] < silent["learned_us"]
    next_sessions = [
        row for row in sessions if row["consumer"] == silent["consumer"] and row != silent
    ]
    assert sum(row["deleted_of_others"] for row in next_sessions) > 0
    attempts = run.table("zookeeper_attempts")
    assert any(row["conflicts"] for row in attempts)
    assert sum(row["requests"] for row in run.table("zookeeper_operations")) > 500
