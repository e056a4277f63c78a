"""The tables of ZooKeeper, and `offset_rewinds`, of random and real runs against plain Python."""

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
    """Open, closed, expired; some clients never learned it, some deleted others' nodes."""
    rows = check_table(random_runs, "zookeeper_sessions", zookeeper_sessions_of, ("session",))
    assert {row["end"] for row in rows} == {"expired", "closed", None}
    assert any(row["consumer"] is None for row in rows)
    assert any(row["deleted_of_others"] and row["created"] for row in rows)
    assert any(row["learned_us"] is not None for row in rows)
    assert any(len(row["servers"]) > 1 and row["disconnections"] for row in rows)
    assert any(row["consumer"] is not None and row["group"] is None for row in rows)


def test_watches_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Some are of transactions that no server has applied, some have no later attempt."""
    key = ("server", "incarnation", "consumer", "fired_us")
    rows = check_table(random_runs, "zookeeper_watches", zookeeper_watches_of, key)
    assert any(row["changed_us"] is None for row in rows)
    assert any(row["lag_us"] for row in rows)
    assert any(row["attempt_us"] is None for row in rows)
    assert any(row["group"] is None for row in rows)


def test_attempts_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Done, in conflict, failed, ended by a death, given up; steps outside of an attempt."""
    key = ("consumer", "incarnation", "started_us")
    rows = check_table(random_runs, "zookeeper_attempts", zookeeper_attempts_of, key)
    outcomes = {row["outcome"] for row in rows}
    assert outcomes == {"done", "no broker", "conflict", "exception", "shut down", None}
    assert {row["gave_up"] for row in rows} == {"starting", "running", "new session", None}
    assert any(row["given_up"] > 1 and row["conflicts"] > 1 and row["view"] for row in rows)
    assert any(row["incarnation"] for row in rows)


def test_operations_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Reads, writes and a session's own cost, separate from requests to brokers."""
    key = ("consumer", "incarnation", "api", "from_us")
    rows = check_table(random_runs, "zookeeper_operations", zookeeper_operations_of, key)
    assert {row["effect"] for row in rows} == {"read", "write", "session"}
    assert len({row["api"] for row in rows}) == 10
    assert any(row["requests"] > 1 for row in rows)


def test_rewinds_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """They are of either store, by members and by clients without a member id."""
    key = ("group", "partition", "store", "at_us", "offset_after")
    rows = check_table(random_runs, "offset_rewinds", offset_rewinds_of, key)
    assert {row["store"] for row in rows} == {"kafka", "zookeeper"}
    assert {row["consumer"] is None for row in rows} == {True, False}


def test_late_release_shows_in_the_tables(random_runs: Runs) -> None:
    """A returning member deletes owner nodes of live ones; others give up (ZK-74, ZK-38)."""
    (run,) = (each for each in random_runs if each.run.startswith("zookeeper_late_release"))
    sessions = run.table("zookeeper_sessions")
    (silent,) = (row for row in sessions if row["end"] == "expired")
    assert silent["ended_us"] < silent["learned_us"]
    back = [row for row in sessions if row["consumer"] == silent["consumer"] and row != silent]
    assert sum(row["deleted_of_others"] for row in back) > 0
    attempts = run.table("zookeeper_attempts")
    assert any(row["conflicts"] for row in attempts)
    assert sum(row["requests"] for row in run.table("zookeeper_operations")) > 500
