"""Start times of nodes: drawn from the seed, uniform, and independent of one another.

If all nodes started together, all their periodic timers would fire together in every run. A fault
at a fixed time would then come at the same point of each timer's period in every run. This point is
called the phase of the timer.

`real_spec` is a cluster of three brokers, twelve consumers and a producer. The tests draw starts
from 400 seeds, and use `p_of_uniform` to check that they are uniform.
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
"""The broker.heartbeat.interval.ms of `real_spec`; a broker's session is SESSION_US."""
SESSION_US = 2_000_000
SEEDS = range(400)
BROKER = NodeName("broker-1")
LIKELY = 0.01
"""Drawn values count as uniform if `p_of_uniform` returns more than this.

It returns the probability that values from a uniform distribution are as uneven as the given ones.
"""
CRASH_US = 5 * SECOND_US
"""Time at which `detect_us` kills the broker."""
REGISTERED_US = 60_000
"""Within this time after its start a broker has registered; then its regular heartbeats begin."""


def starts(seed: int, cluster: ClusterSpec | None = None) -> dict[str, int]:
    """Return the drawn start time of each node."""
    drawn = draw_starts(cluster or real_spec(), seed)
    return {name: start_us for start_us, name in drawn}


def test_brokers_start_evenly_within_a_heartbeat_and_clients_after_them() -> None:
    """The timers of a node begin with the node. So their phases are as uniform as its start."""
    starts_by_seed = [starts(seed) for seed in SEEDS]
    # Clients start when the brokers have had READY_US to get ready, within CLIENTS_SPAN_US.
    ready_us = HEARTBEAT_US + READY_US

    assert {times["controller-100"] for times in starts_by_seed} == {0}
    for number in range(3):
        broker_starts = [times[f"broker-{number}"] for times in starts_by_seed]
        assert p_of_uniform(broker_starts, 0, HEARTBEAT_US) > LIKELY
    for name in ("consumer-readers-0", "consumer-readers-11", "producer-0"):
        client_starts = [times[name] for times in starts_by_seed]
        assert p_of_uniform(client_starts, ready_us, ready_us + CLIENTS_SPAN_US) > LIKELY
    # `draw_starts` returns the nodes in the order of their starts.
    assert all(list(times.values()) == sorted(times.values()) for times in starts_by_seed)


def test_start_of_a_node_is_independent_of_other_nodes() -> None:
    """A node's start depends on its name and the seed only.

    If an experiment is made smaller, the remaining nodes keep their starts, and their timers keep
    their phases.
    """
    alone, among_others = starts(3, real_spec(consumers=1)), starts(3)
    assert {name: among_others[name] for name in alone} == alone


def test_late_node_is_not_drawn_and_long_intervals_do_not_lengthen_the_start() -> None:
    """A late member starts at the time that the experiment gives, so its start is not drawn.

    Brokers start within a heartbeat interval, which is an hour here, but at most in SPAN_MAX_US.
    """
    cluster = real_spec(consumers=2)
    late, initial = (
        replace(consumer, starts_later=later)
        for consumer, later in zip(cluster.consumers, (True, False), strict=True)
    )
    slow = BrokerConfig(broker_heartbeat_interval_ms=3_600_000)
    drawn = starts(1, replace(cluster, consumers=(late, initial), broker_config=slow))

    assert late.name not in drawn
    assert drawn[initial.name] >= SPAN_MAX_US + READY_US
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
    """In the steady state all members have joined, and their timers have just begun.

    A run then waits for a drawn time before its first fault. The wait is up to the longest period
    of a timer, so that the fault meets the timers in any phase.
    """
    cluster = real_spec(consumers=2)
    cluster = replace(
        cluster,
        consumers=tuple(replace(consumer, config=config) for consumer in cluster.consumers),
    )
    waits = [draw_wait_us(cluster, seed) for seed in SEEDS]
    assert p_of_uniform(waits, 0, longest_us) > LIKELY
    # Without members no timer has just begun, so there is no wait.
    assert {draw_wait_us(replace(cluster, consumers=()), seed) for seed in SEEDS} == {0}


def test_first_ticks_of_timers_are_independent_and_anywhere_in_their_period() -> None:
    """`draw_first_tick_us` is for a node that has run for long, whose timers may have any phase.

    The phases of two timers of a node are independent.
    """
    first, second = (
        [draw_first_tick_us(seed, BROKER, timer, SECOND_US) for seed in SEEDS]
        for timer in ("checkpoint", "log-cleaner")
    )
    assert p_of_uniform(first, 0, SECOND_US) > LIKELY
    # If two phases are uniform and independent, their difference is uniform. If both timers had the
    # same phase, the difference would always be 0.
    differences = [(a - b) % SECOND_US for a, b in zip(first, second, strict=True)]
    assert p_of_uniform(differences, 0, SECOND_US) > LIKELY
    assert all(1 <= tick_us <= SECOND_US for tick_us in first + second)


def test_nodes_start_at_their_drawn_time_or_all_at_once() -> None:
    """By default all nodes start together, so that a test knows when its cluster begins."""
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
    """Kill a broker; return the time until the controller fences it, that is, counts it as dead."""
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
    """The controller fences a broker one session after the broker's last heartbeat.

    A broker registers shortly after its start, and then sends heartbeats at a fixed interval. So
    the time from the crash to the fencing is as uniform as the broker's start.
    """
    seeds = range(8)
    fencing_times_us = [detect_us(seed) for seed in seeds]

    for seed, fencing_us in zip(seeds, fencing_times_us, strict=True):
        last_heartbeat_us = CRASH_US + fencing_us - SESSION_US
        phase_us = (last_heartbeat_us - starts(seed)[BROKER]) % HEARTBEAT_US
        # The last heartbeat follows the first one by a whole number of intervals, and the first one
        # follows the start by a short time.
        assert 0 < phase_us < REGISTERED_US
    # The times of the eight seeds are spread over more than half of an interval.
    assert max(fencing_times_us) - min(fencing_times_us) > HEARTBEAT_US // 2
    # The last heartbeat was at most one interval before the crash.
    assert min(fencing_times_us) >= SESSION_US - HEARTBEAT_US
    # 20 ms is more than the latency of a heartbeat.
    assert max(fencing_times_us) <= SESSION_US + 20_000
