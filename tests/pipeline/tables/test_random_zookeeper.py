"""Spark's tables of ZooKeeper, and `offset_rewinds`, equal their oracles in plain Python.

Spark's computation is fast for large runs, but hard to check by eye. The oracle in
`pipeline/in_memory` computes the same rows with simple loops over the trace. `check_table` compares
the two tables of each run, row by row, for random traces and for a few real runs, and returns the
rows of the random traces. It compares each row of Spark's with the row of the oracle that has the
same values in the columns of `key`. A comparison says nothing about a case that does not occur. So
each test then checks that the returned rows have every case.

docs/TABLES.md explains the columns. Ids such as ZK-74 are rules of
docs/kafka/ZOOKEEPER_CONSUMER.md.
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
    """Cases: open, closed and expired sessions; some delete nodes of other sessions."""
    key = ("session",)
    rows = check_table(random_runs, "zookeeper_sessions", zookeeper_sessions_of, key)
    assert {row["end"] for row in rows} == {"expired", "closed", None}
    # A client that never received the answer that opened its session has no node in the row.
    assert any(row["consumer"] is None for row in rows)
    # `deleted_of_others`: ephemeral nodes of other sessions that this session deleted. A session
    # that also created nodes shows that the two counts are kept apart.
    assert any(row["deleted_of_others"] and row["created"] for row in rows)
    # `learned_us`: when a server told the client that its session had expired.
    assert any(row["learned_us"] is not None for row in rows)
    # A client that lost its connection and then connected to another server.
    assert any(len(row["servers"]) > 1 and row["disconnections"] for row in rows)
    # A client that never began to rebalance has no group in the row.
    assert any(row["consumer"] is not None and row["group"] is None for row in rows)


def test_watches_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """Cases: a watch that tells of a change late, or of a change that is not in the trace."""
    key = ("server", "incarnation", "consumer", "fired_us")
    rows = check_table(random_runs, "zookeeper_watches", zookeeper_watches_of, key)
    # `changed_us`: when the transaction was applied; unknown if the trace lacks it.
    assert any(row["changed_us"] is None for row in rows)
    # `lag_us`: from the change to the watch; here above 0.
    assert any(row["lag_us"] for row in rows)
    # No attempt of the consumer followed the watch.
    assert any(row["attempt_us"] is None for row in rows)
    # The client never began to rebalance.
    assert any(row["group"] is None for row in rows)


def test_attempts_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """In an attempt, a consumer tries once to own all partitions that its plan gives it.

    Cases: each outcome. The outcome is None if the consumer died, or the run ended, during the
    attempt.
    """
    key = ("consumer", "incarnation", "started_us")
    rows = check_table(random_runs, "zookeeper_attempts", zookeeper_attempts_of, key)
    outcomes = {row["outcome"] for row in rows}
    assert outcomes == {"done", "no broker", "conflict", "exception", "shut down", None}
    # `gave_up`: what the consumer was doing when it gave up after its last attempt.
    assert {row["gave_up"] for row in rows} == {"starting", "running", "new session", None}
    # `given_up`: partitions that the consumer ceased to read; `conflicts`: partitions that had an
    # owner; `view`: the consumers that this consumer saw in the group.
    assert any(row["given_up"] > 1 and row["conflicts"] > 1 and row["view"] for row in rows)
    # A consumer that was started again.
    assert any(row["incarnation"] for row in rows)


def test_operations_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """An operation reads, writes, or only serves the session, as a ping does.

    Requests to brokers are no operations, so this table does not count them.
    """
    key = ("consumer", "incarnation", "api", "from_us")
    rows = check_table(random_runs, "zookeeper_operations", zookeeper_operations_of, key)
    assert {row["effect"] for row in rows} == {"read", "write", "session"}
    apis_in_docs = 10  # docs/TABLES.md lists ten APIs for the column
    assert len({row["api"] for row in rows}) == apis_in_docs
    assert any(row["requests"] > 1 for row in rows)


def test_rewinds_of_random_runs_equal_the_oracle(random_runs: Runs) -> None:
    """A rewind is a committed offset that is lower than the committed offset before.

    Cases: rewinds in both stores of offsets, by members and by clients without a member id.
    """
    key = ("group", "partition", "store", "at_us", "offset_after")
    rows = check_table(random_runs, "offset_rewinds", offset_rewinds_of, key)
    assert {row["store"] for row in rows} == {"kafka", "zookeeper"}
    assert {row["consumer"] is None for row in rows} == {True, False}


def test_late_release_shows_in_the_tables(random_runs: Runs) -> None:
    """A consumer with an expired session deletes owner nodes of others, and some of them give up.

    The session of a consumer expires, and the consumer opens a new session. In this session it
    still carries out an operation of the old session: it deletes owner nodes that live consumers
    have created in between (ZK-74). A consumer whose attempts meet conflicts gives up (ZK-38).
    """
    (run,) = (run for run in random_runs if run.run.startswith("zookeeper_late_release"))
    sessions = run.table("zookeeper_sessions")
    (expired,) = (row for row in sessions if row["end"] == "expired")
    # The consumer learned of the expiry only when the session had already ended.
    assert expired["ended_us"] < expired["learned_us"]
    next_sessions = [
        row for row in sessions if row["consumer"] == expired["consumer"] and row != expired
    ]
    assert sum(row["deleted_of_others"] for row in next_sessions) > 0
    attempts = run.table("zookeeper_attempts")
    assert any(row["conflicts"] for row in attempts)
    # Every request counts, pings too, so a run of this length has some hundreds of requests.
    assert sum(row["requests"] for row in run.table("zookeeper_operations")) > 500
