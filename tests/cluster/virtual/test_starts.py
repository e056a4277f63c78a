"""Start times of nodes: drawn from the seed, uniform, and independent of one another."""

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
"""broker.heartbeat.interval.ms of `real_spec`, whose session is 2 s."""
SESSION_US = 2_000_000
SEEDS = range(400)
BROKER = NodeName("broker-1")
LIKELY = 0.01
CRASH_US = 5 * SECOND_US
REGISTERED_US = 60_000
"""A starting broker sends its first heartbeat as a serving one within this time."""


def starts(seed: int, cluster: ClusterSpec | None = None) -> dict[str, int]:
    """Return when each node starts."""
    drawn = draw_starts(cluster or real_spec(), seed)
    return {name: start_us for start_us, name in drawn}


def test_brokers_start_evenly_within_a_heartbeat_and_clients_after_them() -> None:
    """The phase of a timer is as uniform as its node's start."""
    drawn = [starts(seed) for seed in SEEDS]
    ready_us = HEARTBEAT_US + READY_US

    assert {each["controller-100"] for each in drawn} == {0}
    for number in range(3):
        of_broker = [each[f"broker-{number}"] for each in drawn]
        assert p_of_uniform(of_broker, 0, HEARTBEAT_US) > LIKELY
    for name in ("consumer-readers-0", "consumer-readers-11", "producer-0"):
        of_client = [each[name] for each in drawn]
        assert p_of_uniform(of_client, ready_us, ready_us + CLIENTS_SPAN_US) > LIKELY
    assert all(list(each.values()) == sorted(each.values()) for each in drawn)


def test_start_of_a_node_is_independent_of_other_nodes() -> None:
    """A plan that is shrunk keeps the phases of the remaining nodes."""
    alone, among_others = starts(3, real_spec(consumers=1)), starts(3)
    assert {name: among_others[name] for name in alone} == alone


def test_late_node_is_not_drawn_and_long_intervals_do_not_lengthen_the_start() -> None:
    """The plan has the times of late members; an interval of an hour would outlast every run."""
    cluster = real_spec(consumers=2)
    late, there = (
        replace(consumer, starts_later=later)
        for consumer, later in zip(cluster.consumers, (True, False), strict=True)
    )
    slow = BrokerConfig(broker_heartbeat_interval_ms=3_600_000)
    drawn = starts(1, replace(cluster, consumers=(late, there), broker_config=slow))

    assert late.name not in drawn
    assert drawn[there.name] >= SPAN_MAX_US + READY_US
    assert max(drawn.values()) < SPAN_MAX_US + READY_US + CLIENTS_SPAN_US


@pytest.mark.parametrize(
    ("config", "longest_us"),
    [
        (ConsumerConfig(heartbeat_interval_ms=3_000, enable_auto_commit=False), 3 * SECOND_US),
        (ConsumerConfig(enable_auto_commit=True, auto_commit_interval_ms=5_000), 5 * SECOND_US),
    ],
)
def test_wait_after_the_steady_state_covers_the_longest_period_of_a_member(
    config: ConsumerConfig, longest_us: int
) -> None:
    """Members begin their periods with the steady state: only time separates them from the plan."""
    cluster = real_spec(consumers=2)
    cluster = replace(
        cluster, consumers=tuple(replace(each, config=config) for each in cluster.consumers)
    )
    waits = [draw_wait_us(cluster, seed) for seed in SEEDS]
    assert p_of_uniform(waits, 0, longest_us) > LIKELY
    assert {draw_wait_us(replace(cluster, consumers=()), seed) for seed in SEEDS} == {0}


def test_first_ticks_of_timers_are_independent_and_anywhere_in_their_period() -> None:
    """The timers of a node that ran for long have any phase, independent of one another."""
    first, second = (
        [draw_first_tick_us(seed, BROKER, timer, SECOND_US) for seed in SEEDS]
        for timer in ("checkpoint", "log-cleaner")
    )
    assert p_of_uniform(first, 0, SECOND_US) > LIKELY
    apart = [(a - b) % SECOND_US for a, b in zip(first, second, strict=True)]
    assert p_of_uniform(apart, 0, SECOND_US) > LIKELY
    assert all(1 <= tick_us <= SECOND_US for tick_us in first + second)


def test_nodes_start_at_their_drawn_time_or_all_at_once() -> None:
    """The default is all at once: a test that builds a cluster knows when it begins."""
    for apart in (True, False):
        rows: list[TraceRow] = []
        runtime = VirtualRuntime(
            fake_spec(), seed=5, run_id="starts", observers=[rows.append], build=fake_builder()
        )
        runtime.run(runtime.start(apart=apart))
        runtime.run(runtime.stop())
        started = [(r.time_us, r.node) for r in rows if r.kind == TraceKind.NODE_STARTED]
        drawn = draw_starts(fake_spec(), 5)
        expected = drawn if apart else [(0, name) for _, name in drawn]
        assert sorted(started) == sorted(expected)
        assert (len({time_us for time_us, _ in started}) > 1) is apart


def detect_us(seed: int) -> int:
    """Kill a broker of a cluster without clients at a fixed time; return its fencing time."""
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
    fenced = [r.time_us for r in rows if r.kind == TraceKind.BROKER_FENCED and r.peer == BROKER]
    return fenced[-1] - CRASH_US


def test_time_to_fence_a_dead_broker_follows_from_its_drawn_start() -> None:
    """It sends heartbeats from its start on, so the rest of its session is as uniform as that."""
    seeds = range(8)
    detects = [detect_us(seed) for seed in seeds]

    for seed, detected_us in zip(seeds, detects, strict=True):
        since_start_us = CRASH_US - starts(seed)[BROKER]
        assert 0 < (detected_us - SESSION_US + since_start_us) % HEARTBEAT_US < REGISTERED_US
    assert max(detects) - min(detects) > HEARTBEAT_US // 2
    assert SESSION_US - HEARTBEAT_US <= min(detects) <= max(detects) <= SESSION_US + 20_000
