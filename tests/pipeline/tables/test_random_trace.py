"""The random traces are plausible and repeatable, and have all cases that the oracles need.

An oracle computes a table in plain Python, to be compared with Spark's table of the same trace. A
seed gives one random trace.
"""

from collections import Counter

from protocol.trace import TraceKind
from tests.support.random_worlds.random_runs import SEEDS, ZOOKEEPER_SEEDS
from tests.support.random_worlds.random_trace import random_run
from tests.support.random_worlds.random_zookeeper import random_zookeeper_run

_NEVER_RANDOM = {
    TraceKind.RESPONSE_LOST,
    TraceKind.ZOOKEEPER_EVENT_RECEIVED,
    TraceKind.REQUEST_WAITING,
    TraceKind.STEADY_STATE_MISSED,
    TraceKind.OFFSETS_UNREADABLE,
    TraceKind.CONNECTION_REFUSED,
    TraceKind.BROKER_REGISTERED,
    TraceKind.BROKER_FENCED,
    TraceKind.BROKER_UNFENCED,
    TraceKind.ISR_CHANGED,
    TraceKind.LOG_TRUNCATED,
    TraceKind.LOG_RECOVERED,
    TraceKind.HIGH_WATERMARK,
    TraceKind.LOAD_IGNORED,
    TraceKind.SESSION_RESTARTED,
    TraceKind.LOAD_FAILED,
    TraceKind.LOG_CLEANED,
    TraceKind.TOPIC_DELETED,
    TraceKind.OFFSET_REMOVED,
    TraceKind.ADMIN_COMMIT,
    TraceKind.TXN_COMMIT_PENDING,
    TraceKind.TRANSACTION_COMPLETED,
    TraceKind.TRANSACTIONS_LOADED,
    TraceKind.TRANSACTION_STATE,
    TraceKind.ZOOKEEPER_STATE,
    TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
    TraceKind.VIOLATION,
    TraceKind.TASK_FAILED,
}
"""Kinds that no random trace has. No table reads them, so that their absence has no effect."""


def test_random_run_of_one_seed_is_reproducible() -> None:
    """A table that differs from its oracle must differ again under the same seed."""
    assert random_run(5) == random_run(5)
    assert random_run(5) != random_run(6)


def test_random_runs_number_rows_and_order_times_in_each_incarnation() -> None:
    """Readers order the rows of a node by `seq`; as in a real trace, times follow this order."""
    for seed in SEEDS:
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for row in random_run(seed):
            life = (row.node, row.incarnation)
            seq, time_us = last.get(life, (-1, 0))
            assert row.seq == seq + 1
            assert row.time_us >= time_us
            last[life] = (row.seq, row.time_us)


def test_random_runs_have_every_kind_that_a_table_reads() -> None:
    """A kind that no random trace has would not be compared with its oracle."""
    rows = [row for seed in SEEDS for row in random_run(seed)]
    rows += [row for seed in ZOOKEEPER_SEEDS for row in random_zookeeper_run(seed)]
    kinds = Counter(row.kind for row in rows)
    wanted = [kind for kind in TraceKind if kind not in _NEVER_RANDOM]
    too_rare = [kind.value for kind in wanted if kinds[kind] < 2]
    assert too_rare == []


def test_random_runs_have_ties_and_two_incarnations_and_open_ends() -> None:
    """Windows and joins go wrong in these cases, so the random runs must have each many times."""
    runs = [random_run(seed) for seed in SEEDS]

    # Ties: moments at which several rows of a run were written.
    times = [Counter(row.time_us for row in rows) for rows in runs]
    assert sum(count > 1 for counted in times for count in counted.values()) > 1_000
    # Nodes with a second incarnation.
    lives = {(seed, row.node) for seed, rows in enumerate(runs) for row in rows if row.incarnation}
    assert len(lives) > 10
    # Most runs record that they stop; a run that broke off has an open end.
    ended = [any('"stopping"' in (row.detail or "") for row in rows) for rows in runs]
    assert 4 < sum(ended) < len(ended)
