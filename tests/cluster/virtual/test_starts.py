"""Start times of nodes: drawn from the seed, uniform, and independent of one another.

Nodes have periodic timers, such as heartbeats. If all nodes of every run started at the same time,
a fault at 60 s would always hit each timer at the same point of its period, for example just before
a heartbeat. This point is called the phase of the timer. So that all phases occur, the nodes start
at times that are drawn at random.

The tests draw the start times of `real_spec`, a cluster of three brokers, twelve consumers and a
producer, with 400 seeds. `p_of_uniform` checks that they are spread evenly over an interval.
"""

import pytest
from msgspec.structs import replace

from cluster.spec import ClusterSpec
from cluster.virtual.runtime import VirtualRuntime
from cluster.virtual.starts import (
    CLIENTS_SPAN_US,
    READY_US,
    SPAN_MAX_US,
    draw_first_tick_us,
    draw_starts,
    draw_wait_us,
)
from protocol.config import BrokerConfig, ConsumerConfig
from protocol.ids import NodeName
from protocol.trace import TraceKind, TraceRow
from tests.support.evenness import p_of_uniform
from tests.support.harness.fake_cluster import fake_builder, fake_spec
from tests.support.harness.real_cluster import real_spec

SECOND_US = 1_000_000
HEARTBEAT_US = 500_000
"""Interval of the brokers' heartbeats in `real_spec` (broker.heartbeat.interval.ms)."""
SESSION_US = 2_000_000
"""If the controller gets no heartbeat for this time, it fences the broker (counts it as dead)."""
SEEDS = range(400)
BROKER = NodeName("broker-1")
LIKELY = 0.01
"""Drawn values count as uniform if `p_of_uniform` returns more than 0.01.

`p_of_uniform` returns the probability that values from a uniform distribution are as uneven as the
drawn values.
"""
CRASH_US = 5 * SECOND_US
"""Time at which `time_to_fencing_us` kills the broker."""
REGISTERED_US = 60_000
"""Within this time after its start a broker has registered, and its heartbeats begin."""


def starts(seed: int, cluster: ClusterSpec | None = None) -> dict[str, int]:
    """Return the drawn start time of each node."""
    drawn = draw_starts(cluster or real_spec(), seed)
    return {name: start_us for start_us, name in drawn}


def test_brokers_start_evenly_within_a_heartbeat_and_clients_after_them() -> None:
    """The timers of a node begin with the node, so their phases are as uniform as its start.

    1. The controller starts at 0.
    2. The brokers start within one interval of their heartbeats.
    3. READY_US later the last broker is ready, too. Within the next CLIENTS_SPAN_US the clients
       start: twelve consumers (the test looks at the first and the last) and a producer.
    """
    starts_by_seed = [starts(seed) for seed in SEEDS]

    assert {times["controller-100"] for times in starts_by_seed} == {0}
    for number in range(3):
        broker_starts = [times[f"broker-{number}"] for times in starts_by_seed]
        assert p_of_uniform(broker_starts, 0, HEARTBEAT_US) > LIKELY
    ready_us = HEARTBEAT_US + READY_US
    for name in ("consumer-readers-0", "consumer-readers-11", "producer-0"):
        client_starts = [times[name] for times in starts_by_seed]
        assert p_of_uniform(client_starts, ready_us, ready_us + CLIENTS_SPAN_US) > LIKELY
    for times in starts_by_seed:
        assert list(times.values()) == sorted(times.values())  # in the order of their starts


def test_start_of_a_node_is_independent_of_other_nodes() -> None:
    """A node's start depends on its name and the seed only.

    If an experiment is made smaller, the remaining nodes keep their starts, and their timers keep
    their phases.
    """
    small_cluster = starts(3, real_spec(consumers=1))
    full_cluster = starts(3)
    assert {name: full_cluster[name] for name in small_cluster} == small_cluster


def test_late_node_is_not_drawn_and_long_intervals_do_not_lengthen_the_start() -> None:
    """Two exceptions: a member that starts later, and brokers with a very long interval.

    A late member starts at the time that the experiment gives, so its start is not drawn. Brokers
    start within one interval of their heartbeats, but never later than SPAN_MAX_US. Here the
    interval is an hour, so they start within SPAN_MAX_US.
    """
    cluster = real_spec(consumers=2)
    late, punctual = cluster.consumers
    late = replace(late, starts_later=True)
    slow = BrokerConfig(broker_heartbeat_interval_ms=3_600_000)
    drawn = starts(1, replace(cluster, consumers=(late, punctual), broker_config=slow))

    assert late.name not in drawn
    assert drawn[punctual.name] >= SPAN_MAX_US + READY_US
    assert max(drawn.values()) < SPAN_MAX_US + READY_US + CLIENTS_SPAN_US


@pytest.mark.parametrize(
    ("config", "longest_period_us"),
    [
        pytest.param(
            ConsumerConfig(heartbeat_interval_ms=3_000, enable_auto_commit=False),
            3 * SECOND_US,
            id="heartbeats",
        ),
        pytest.param(
            ConsumerConfig(enable_auto_commit=True, auto_commit_interval_ms=5_000),
            5 * SECOND_US,
            id="auto-commits",
        ),
    ],
)
def test_wait_after_the_steady_state_covers_the_longest_period_of_a_member(
    config: ConsumerConfig, longest_period_us: int
) -> None:
    """In the steady state all members have joined, and their timers have just begun.

    If the first fault came now, it would always hit the timers at the beginning of their periods.
    So a run first waits for a drawn time, which is at most the longest period of a member's timer.
    """
    cluster = real_spec(consumers=2)
    cluster = replace(
        cluster,
        consumers=tuple(replace(consumer, config=config) for consumer in cluster.consumers),
    )
    waits = [draw_wait_us(cluster, seed) for seed in SEEDS]
    assert p_of_uniform(waits, 0, longest_period_us) > LIKELY
    # Without members no timer has just begun, so there is no wait.
    without_members = replace(cluster, consumers=())
    assert {draw_wait_us(without_members, seed) for seed in SEEDS} == {0}


def test_first_ticks_of_timers_are_independent_and_anywhere_in_their_period() -> None:
    """A node may count as one that has run for long. Then each of its timers may have any phase.

    Here the two timers of such a node have a period of one second. Their first ticks are spread
    over this second, and independent of each other.
    """
    checkpoint_us = [draw_first_tick_us(seed, BROKER, "checkpoint", SECOND_US) for seed in SEEDS]
    cleaner_us = [draw_first_tick_us(seed, BROKER, "log-cleaner", SECOND_US) for seed in SEEDS]
    assert all(1 <= tick_us <= SECOND_US for tick_us in checkpoint_us + cleaner_us)
    assert p_of_uniform(checkpoint_us, 0, SECOND_US) > LIKELY
    # If two phases are uniform and independent, their difference is uniform, too. If both timers
    # had the same phase, the difference would always be 0.
    differences = [
        (tick_us - other_tick_us) % SECOND_US
        for tick_us, other_tick_us in zip(checkpoint_us, cleaner_us, strict=True)
    ]
    assert p_of_uniform(differences, 0, SECOND_US) > LIKELY


def starts_in_a_run(*, apart: bool) -> list[tuple[int, str]]:
    """Start a cluster, and return the time and the name of each node's start."""
    rows: list[TraceRow] = []
    runtime = VirtualRuntime(
        fake_spec(), seed=5, run_id="starts", observers=[rows.append], build=fake_builder()
    )
    runtime.run(runtime.start(apart=apart))
    runtime.run(runtime.stop())
    return sorted((row.time_us, row.node) for row in rows if row.kind == TraceKind.NODE_STARTED)


def test_nodes_start_at_their_drawn_times() -> None:
    """With `apart` each node starts at its drawn time."""
    started = starts_in_a_run(apart=True)
    assert started == sorted(draw_starts(fake_spec(), 5))
    assert len({time_us for time_us, _ in started}) > 1


def test_nodes_start_all_at_once_by_default() -> None:
    """Without `apart` all nodes start at 0, so a test knows when its cluster begins."""
    names = [name for _, name in draw_starts(fake_spec(), 5)]
    assert starts_in_a_run(apart=False) == sorted((0, name) for name in names)


def time_to_fencing_us(seed: int) -> int:
    """Kill a broker, and return the time until the controller fences it."""
    rows: list[TraceRow] = []
    cluster = replace(real_spec(), consumers=(), producers=())
    runtime = VirtualRuntime(
        cluster, seed=seed, run_id="starts", observers=[rows.append], trace_messages=False
    )

    async def main() -> None:
        await runtime.start(apart=True)
        await runtime.sleep(CRASH_US - runtime.now_us())
        await runtime.crash(BROKER)
        await runtime.sleep(SESSION_US + SECOND_US)
        await runtime.stop()

    runtime.run(main())
    fenced_at_us = [
        row.time_us for row in rows if row.kind == TraceKind.BROKER_FENCED and row.peer == BROKER
    ]
    return fenced_at_us[-1] - CRASH_US


def test_time_to_fence_a_dead_broker_follows_from_its_drawn_start() -> None:
    """The controller fences a broker one session after the broker's last heartbeat.

    A broker registers shortly after its start, and then sends heartbeats at a fixed interval. So
    the time from the crash to the fencing is as uniform as the broker's start.
    """
    seeds = range(8)  # few, because each seed runs a cluster for some seconds
    times_us = [time_to_fencing_us(seed) for seed in seeds]

    for seed, time_us in zip(seeds, times_us, strict=True):
        last_heartbeat_us = CRASH_US + time_us - SESSION_US
        since_start_us = last_heartbeat_us - starts(seed)[BROKER]
        # The first heartbeat comes less than REGISTERED_US after the start. From the first to the
        # last heartbeat there is a whole number of intervals.
        assert 0 < since_start_us % HEARTBEAT_US < REGISTERED_US
    # The times of the eight seeds are spread over more than half of an interval.
    assert max(times_us) - min(times_us) > HEARTBEAT_US // 2
    # The last heartbeat was at most one interval before the crash.
    assert min(times_us) >= SESSION_US - HEARTBEAT_US
    heartbeat_latency_max_us = 20_000
    assert max(times_us) <= SESSION_US + heartbeat_latency_max_us
