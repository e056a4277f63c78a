"""Effort: how much work the cluster needed for a run, such as rebalances, elections and requests.

A bug may make the cluster do more work than necessary, and yet break no promise of Kafka's. So a
benchmark plays the same seeds before and after a change of the code, and compares their effort. The
benchmark must distinguish real growth from chance.
"""

import pytest

from benchmarks.effort import SEEDS, compare, counts_of
from chaos.exploration.effort import UNUSED, Effort
from chaos.exploration.play import PlayedRun, PlayResult, play
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp
from tests.support.worlds.planted import small

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def row(kind: TraceKind, generation: int | None = None, *, node: str = "broker-0") -> TraceRow:
    """Return a row that a coordinator, by default broker-0, writes about the group `readers`."""
    event = TraceEvent(kind=kind, group="readers", generation=generation)
    return stamp(event, run="r", time_us=0, node_time_us=0, seq=0, node=node, incarnation=0)


def counted(*rows: TraceRow) -> dict[str, int]:
    """Return what the rows count as effort, without the counts that are 0."""
    effort = Effort()
    for observed in rows:
        effort.observe(observed)
    return {name: count for name, count in effort.counts().items() if count}


def test_rows_are_counted_by_their_meaning() -> None:
    """A stored commit is the ordinary work of a coordinator, so it does not count as effort."""
    assert counted(
        row(TraceKind.REBALANCE_STARTED),
        row(TraceKind.REBALANCE_STARTED),
        row(TraceKind.LOG_TRUNCATED),
        row(TraceKind.COMMIT_STORED),
    ) == {"rebalances": 2, "truncations": 1}


def test_generation_whose_assignment_was_never_stored_is_unused() -> None:
    """A generation is unused if the coordinator that began it never stored its assignment.

    Here two brokers believe that they are the coordinator, and both begin a generation 2. Only
    broker-1 stores the assignment of its generation, so the generation 2 of broker-0 is unused.
    """
    assert counted(
        row(TraceKind.GENERATION_STARTED, generation=1),
        row(TraceKind.GENERATION_STARTED, generation=2),
        row(TraceKind.GENERATION_STARTED, generation=2, node="broker-1"),
        row(TraceKind.ASSIGNMENT_STORED, generation=1),
        row(TraceKind.ASSIGNMENT_STORED, generation=2, node="broker-1"),
    ) == {UNUSED: 1}


def test_a_crash_of_the_coordinator_costs_an_election_and_a_load() -> None:
    """Members that lose their coordinator, and must look it up again, are counted as well."""
    # `small(CRASH)` is a small experiment with the fault CRASH.
    run = play(small(CRASH), seed=1)
    assert run.result is PlayResult.PASS
    assert run.effort["leaders_elected"] > 0
    assert run.effort["loads"] > 0
    assert run.effort["coordinators_lost"] > 0


def test_counts_of_runs_include_requests_and_zeros() -> None:
    """Each list has a count of each run. A run without Fetch requests has the count 0."""
    runs = [
        PlayedRun(seed=0, result=PlayResult.PASS, effort={"loads": 1}, requests={"Fetch": 7}),
        PlayedRun(seed=1, result=PlayResult.PASS, effort={"loads": 0}),
    ]
    assert counts_of(runs) == {"loads": [1, 0], "requests Fetch": [7, 0]}


@pytest.mark.parametrize(
    ("counts", "has_grown"),
    [
        ([10] * SEEDS, False),
        # Each run needs one truncation more.
        ([11] * SEEDS, True),
        # Every fourth run needs one more. This is significant, but the sum grows by 2.5 % only, and
        # up to 3 % are tolerated.
        ([10, 10, 10, 11] * (SEEDS // 4), False),
        # A single run needs six times as many, which may be chance.
        ([60, *[10] * (SEEDS - 1)], False),
        ([9] * SEEDS, False),
    ],
)
def test_growth_is_a_regression_if_it_is_large_and_significant(
    counts: list[int], has_grown: bool
) -> None:
    """`counts` has the number of truncations of each seed.

    Before the change each seed needed 10 truncations.
    """
    (change,) = compare({"truncations": counts}, {"truncations": [10] * SEEDS})
    assert change.has_grown is has_grown
    assert (change.now, change.recorded) == (sum(counts), 10 * SEEDS)


def test_new_count_is_compared_with_zero() -> None:
    """With the earlier code no producer failed, so its record lacks this count."""
    (change,) = compare({"produces_failed": [2, 3] * (SEEDS // 2)}, {})
    assert (change.recorded, change.has_grown) == (0, True)
