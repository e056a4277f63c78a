"""The random traces for which other tests compare Spark's tables with tables of plain Python.

`random_run(seed)` makes a trace: the events of a run that no cluster played. A trace must be
plausible, and the same in each call with the same seed. All traces together must have every case in
which the two computations could differ.
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
    TraceKind.PENDING_COMMIT_REMOVED,
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
"""Kinds that no random trace has. No table reads rows of these kinds, so no test needs them."""


def test_random_run_of_one_seed_is_reproducible() -> None:
    """If a table differs from its oracle under a seed, it must differ again in the next run."""
    assert random_run(5) == random_run(5)
    assert random_run(5) != random_run(6)


def test_random_runs_number_rows_and_order_times_in_each_incarnation() -> None:
    """`seq` numbers the rows of one life of a process, in the order of their times."""
    for seed in SEEDS:
        last_seq_and_time: dict[tuple[str, int], tuple[int, int]] = {}
        for row in random_run(seed):
            life = (row.node, row.incarnation)
            last_seq, last_time_us = last_seq_and_time.get(life, (-1, 0))
            assert row.seq == last_seq + 1
            assert row.time_us >= last_time_us
            last_seq_and_time[life] = (row.seq, row.time_us)


def test_random_runs_have_every_kind_that_a_table_reads() -> None:
    """If a kind were missing in all random traces, no test would compare how the tables use it."""
    rows = [row for seed in SEEDS for row in random_run(seed)]
    rows += [row for seed in ZOOKEEPER_SEEDS for row in random_zookeeper_run(seed)]
    kinds = Counter(row.kind for row in rows)
    kinds_of_tables = [kind for kind in TraceKind if kind not in _NEVER_RANDOM]
    too_rare = [kind.value for kind in kinds_of_tables if kinds[kind] < 2]
    assert too_rare == []


def test_random_runs_have_ties_and_two_incarnations_and_open_ends() -> None:
    """Spark's windows and joins go wrong in these cases, so each must occur many times."""
    runs = [random_run(seed) for seed in SEEDS]

    # Ties: moments at which several rows of a run were written.
    rows_per_time = [Counter(row.time_us for row in rows) for rows in runs]
    assert sum(count > 1 for counts in rows_per_time for count in counts.values()) > 1_000
    # Nodes with a second incarnation.
    restarted = {
        (run_index, row.node)
        for run_index, rows in enumerate(runs)
        for row in rows
        if row.incarnation
    }
    assert len(restarted) > 10
    # Some runs end with a row of the stage "stopping". The other runs broke off, so their intervals
    # have no ends.
    ended = [any('"stopping"' in (row.detail or "") for row in rows) for rows in runs]
    assert 4 < sum(ended) < len(ended)
