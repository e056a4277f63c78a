"""Start times of a run's nodes, drawn from the seed.

If all nodes of a simulated cluster started at the same moment, their timers would tick together
during the whole run. A fault at a certain time would always come at the same moment between two
heartbeats. In a real cluster a fault may come at any moment between two heartbeats. So the nodes
start at random times: each broker starts within a span that is as long as the period of its
heartbeats. For the members of a group, random starts are not enough, because their heartbeats begin
together when the group is stable. So `draw_wait_us` draws a random wait before the first fault.

Each node has a random stream of its own here. So drawing these times changes no other random number
of the run, and a node that is added to the cluster does not change the times of the other nodes.
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
"""Time from the last possible start of a broker to the first possible start of a client: long
enough for all brokers to be ready."""
CLIENTS_SPAN_US = 250_000
"""Length of the span in which all clients start, as if one command had started them.

The span is long enough for the clients' polls and commits to be out of step. It is short enough for
all members of a group to join the group's first generation together."""
SPAN_MAX_US = 10_000_000
"""Longest span in which random times are drawn, even if a timer's period is longer. Periods far
above Kafka's defaults would only make runs longer, and show nothing new."""


def draw_starts(cluster: ClusterSpec, seed: int) -> list[tuple[int, NodeName]]:
    """Return (start time, node) for each node of the initial cluster, in the order of time.

    The times are in microseconds. Controllers and ZooKeeper servers start at 0. Brokers start
    within the next broker.heartbeat.interval.ms. The span of the clients begins READY_US after the
    end of the brokers' span, and is CLIENTS_SPAN_US long.
    """
    starts = [
        (_start_us(spec, cluster, seed), spec.name)
        for spec in node_specs(cluster)
        if not starts_later(spec)
    ]
    # `sorted` is stable: nodes with the same start time stay in the order of the cluster's spec.
    return sorted(starts, key=lambda start: start[0])


def draw_wait_us(cluster: ClusterSpec, seed: int) -> int:
    """Draw how long a run waits from the beginning of the steady state until its plan begins.

    The steady state begins when every group is stable; the plan is the run's list of faults. When a
    group becomes stable, its members begin to send heartbeats. Without the wait, the faults of all
    runs would come at the same moment between two heartbeats.

    Returns: microseconds, from 0 to the longest period of a timer of the members.
    """
    return stream(seed, "wait").randrange(max(_members_periods_us(cluster), default=0) + 1)


def draw_first_tick_us(seed: int, node: NodeName, timer: str, period_us: int) -> int:
    """Draw the time until the first tick of a timer that has ticked for a long time already.

    The timer ticks every `period_us`.
    """
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
    """Yield the periods of the timers that matter for members of groups."""
    if cluster.zookeeper_consumers:
        # For members of groups on ZooKeeper this is the tick of the servers, which check once in
        # each tick which sessions have ended.
        yield cluster.zookeeper_config.tick_time * 1_000
    for consumer in cluster.consumers:
        config = consumer.config
        yield min(config.heartbeat_interval_ms * 1_000, SPAN_MAX_US)
        if config.enable_auto_commit:
            yield min(config.auto_commit_interval_ms * 1_000, SPAN_MAX_US)
