"""When the nodes of a run start: what of a cluster's beginning is chance, drawn from its seed.

Owns the spans and the draws; `runtime` carries them out. In reality nodes start apart, and nobody
breaks a cluster in step with its timers. A timer's phase is fixed by the start of its node, so each
start is drawn evenly from a span of at least the period that figures hang on, and whatever comes
later is independent of it: the phase is then uniform. Each node has streams of its own, so that
these draws shift no other ones, and another node in the cluster shifts none of these.
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
"""From the end of the brokers' span until clients start: by then the cluster stands."""
CLIENTS_SPAN_US = 250_000
"""Clients start within it, as one command starts them: their polls and commits are out of step, and
the members of a group are in its first generation together."""
SPAN_MAX_US = 10_000_000
"""The longest span: settings far beyond Kafka's defaults would only make runs longer."""


def drawn_starts(cluster: ClusterSpec, seed: int) -> list[tuple[int, NodeName]]:
    """Return when each node that is there from the beginning starts, in the order of time.

    Units: microseconds from the first one. The controllers and ZooKeeper's servers come first;
    the brokers within one broker.heartbeat.interval.ms, which decides when the controller misses
    one; clients on a cluster that stands, at moments that do not depend on the brokers'.
    """
    starts = [
        (_start_us(spec, cluster, seed), spec.name)
        for spec in node_specs(cluster)
        if not starts_later(spec)
    ]
    return sorted(starts, key=lambda start: start[0])  # stable: at one time, in the cluster's order


def drawn_wait_us(cluster: ClusterSpec, seed: int) -> int:
    """Return for how long after the steady state nothing is done yet.

    A group's members begin to heartbeat when it is stable, which is also when a steady state is
    seen: this wait, drawn evenly from the longest period of a member, is what parts the two.
    """
    return stream(seed, "wait").randrange(max(_members_periods_us(cluster), default=0) + 1)


def drawn_tick_us(seed: int, node: NodeName, timer: str, period_us: int) -> int:
    """Return when a node's timer ticks first that has ticked every `period_us` for long."""
    return 1 + stream(seed, "tick", node, timer).randrange(max(1, period_us))


def _start_us(spec: NodeSpec, cluster: ClusterSpec, seed: int) -> int:
    if isinstance(spec, ControllerSpec | ZooKeeperSpec):
        return 0
    brokers_us = min(cluster.broker_config.broker_heartbeat_interval_ms * 1_000, SPAN_MAX_US)
    draw = stream(seed, "start", spec.name).randrange
    if isinstance(spec, BrokerSpec):
        return draw(brokers_us)
    return brokers_us + READY_US + draw(CLIENTS_SPAN_US)


def _members_periods_us(cluster: ClusterSpec) -> Iterator[int]:
    if cluster.zookeeper_consumers:
        yield cluster.zookeeper_config.tick_time * 1_000  # sessions end at whole ticks
    for consumer in cluster.consumers:
        config = consumer.config
        yield min(config.heartbeat_interval_ms * 1_000, SPAN_MAX_US)
        if config.enable_auto_commit:
            yield min(config.auto_commit_interval_ms * 1_000, SPAN_MAX_US)
