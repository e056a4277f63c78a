"""Start times of a run's nodes, drawn from the seed.

If all nodes of a simulated cluster started at the same moment, their timers would tick together for
ever, and a fault at a certain time would always come at the same moment between two heartbeats. In
a real cluster it may come at any moment. So the nodes start at random times: each broker within a
span as long as the period of its heartbeats. `draw_wait_us` has the same purpose for the heartbeats
of members, which begin together when the group is stable.

Each node has a random stream of its own here. So these times do not change any other random number
of the run, and another node in the cluster does not change the times of the others.
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
"""Clients start this long after the last possible start of a broker, when brokers are ready."""
CLIENTS_SPAN_US = 250_000
"""Clients start within this time, as if one command had started them.

It is long enough for their polls and commits to be out of step, and short enough for all members of
a group to join its first generation together."""
SPAN_MAX_US = 10_000_000
"""Longest span. Periods far above Kafka's defaults would make runs longer and show nothing new."""


def draw_starts(cluster: ClusterSpec, seed: int) -> list[tuple[int, NodeName]]:
    """Return (start time, node) for each node of the initial cluster, in the order of time.

    The times are in microseconds. Controllers and ZooKeeper servers start at 0, brokers within the
    next broker.heartbeat.interval.ms. Clients start READY_US later, or up to CLIENTS_SPAN_US after
    that.
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
        # The servers check once in each tick which sessions have ended.
        yield cluster.zookeeper_config.tick_time * 1_000
    for consumer in cluster.consumers:
        config = consumer.config
        yield min(config.heartbeat_interval_ms * 1_000, SPAN_MAX_US)
        if config.enable_auto_commit:
            yield min(config.auto_commit_interval_ms * 1_000, SPAN_MAX_US)
