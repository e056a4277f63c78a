"""Start times of a run's nodes, drawn from the seed.

This module owns the time spans and the draws; `runtime` starts the nodes. The phase of a timer is
the time since its last tick; it follows from the start of the timer's node. In reality, nodes start
at different moments, and faults come at any phase. So the start of a broker is drawn evenly from a
span as long as the period of its heartbeats: at any later time the phase of its heartbeats is
uniform. `draw_wait_us` has the same purpose for the timers of members.

Each node draws from a random stream of its own. So these draws do not shift any other draw of the
run. Nor does an additional node in the cluster.
"""

from collections.abc import Iterator

from cluster.host.randomness import stream
from cluster.node_factory import node_specs
from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ControllerSpec,
    NodeSpec,
    ZooKeeperSpec,
    starts_later,
)
from protocol.ids import NodeName

READY_US = 500_000
"""Time from the end of the brokers' span until clients start, in which the brokers get ready."""
CLIENTS_SPAN_US = 250_000
"""Span within which clients start, as if one command started them. Their polls and
commits are out of step, but all members of a group can join the first generation together."""
SPAN_MAX_US = 10_000_000
"""Longest span. Periods far above Kafka's defaults would make runs longer and show nothing new."""


def draw_starts(cluster: ClusterSpec, seed: int) -> list[tuple[int, NodeName]]:
    """Return (start time, node) for each node of the initial cluster, in the order of time.

    Units: microseconds from the first start. Controllers and ZooKeeper servers start at 0. Brokers
    start within one broker.heartbeat.interval.ms, so that the phase of their heartbeats to the
    controller is uniform. Clients start READY_US after the end of that span, or up to
    CLIENTS_SPAN_US later. Their moments do not depend on the brokers' draws.
    """
    starts = [
        (_start_us(spec, cluster, seed), spec.name)
        for spec in node_specs(cluster)
        if not starts_later(spec)
    ]
    return sorted(starts, key=lambda start: start[0])  # stable: ties stay in the cluster's order


def draw_wait_us(cluster: ClusterSpec, seed: int) -> int:
    """Draw how long a run waits from the beginning of the steady state until its plan begins.

    The plan is the run's list of faults. The steady state begins when every group is stable. At
    that time the members also begin to send heartbeats. Without the wait, each plan would begin at
    the same phase of the heartbeats.
    Returns: microseconds, drawn evenly from 0 to the longest period among the members' timers.
    """
    return stream(seed, "wait").randrange(max(_members_periods_us(cluster), default=0) + 1)


def draw_first_tick_us(seed: int, node: NodeName, timer: str, period_us: int) -> int:
    """Draw the first tick of a timer that has ticked every `period_us` for a long time."""
    # From 1 to `period_us`: if a timer has just ticked, its next tick comes a whole period later.
    return 1 + stream(seed, "tick", node, timer).randrange(max(1, period_us))


def _start_us(spec: NodeSpec, cluster: ClusterSpec, seed: int) -> int:
    """Return the start time of one node, as `draw_starts` describes it."""
    if isinstance(spec, ControllerSpec | ZooKeeperSpec):
        return 0
    brokers_us = min(cluster.broker_config.broker_heartbeat_interval_ms * 1_000, SPAN_MAX_US)
    draw = stream(seed, "start", spec.name).randrange
    if isinstance(spec, BrokerSpec):
        return draw(brokers_us)
    return brokers_us + READY_US + draw(CLIENTS_SPAN_US)


def _members_periods_us(cluster: ClusterSpec) -> Iterator[int]:
    """Yield the periods of the members' timers, of consumers with and without ZooKeeper."""
    if cluster.zookeeper_consumers:
        yield cluster.zookeeper_config.tick_time * 1_000  # sessions end at whole ticks
    for consumer in cluster.consumers:
        config = consumer.config
        yield min(config.heartbeat_interval_ms * 1_000, SPAN_MAX_US)
        if config.enable_auto_commit:
            yield min(config.auto_commit_interval_ms * 1_000, SPAN_MAX_US)
