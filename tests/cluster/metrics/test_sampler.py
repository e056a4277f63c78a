"""The nodes of a cluster record their metrics from time to time, and the values are right.

MetricsSampler does this for a node. A sample is an event in the trace of the run, whose detail has
the values of all metrics of the node, such as {"LeaderCount": 4, ...}. Most tests look at the
samples of one run, in which a broker crashes and comes back.
"""

import json
from functools import cache

import pytest

from chaos.experiment.loader import load_experiment
from cluster.metrics.sampler import MetricsSampler
from protocol.trace import TraceKind
from tests.support.harness.virtual_hosts import HostLab
from tests.support.worlds.acceptance import VirtualRun, play_virtual

BROKERS = ("broker-0", "broker-1", "broker-2")


@cache
def crash_run() -> VirtualRun:
    """Play the experiment coordinator_crash. Only the first call plays it."""
    return play_virtual(
        load_experiment("coordinator_crash").experiment, seed=7, trace_messages=False
    )


def samples(node: str, name: str) -> list[tuple[int, float]]:
    """Return the time and the value of each sample of a node's metric, in order."""
    samples_of_node = [
        (row.time_us, json.loads(row.detail or "{}"))
        for row in crash_run().rows
        if row.kind == TraceKind.METRICS and row.node == node
    ]
    return [(time_us, values[name]) for time_us, values in samples_of_node if name in values]


def first_value(node: str, name: str) -> float:
    """Return the value in the first sample of a node's metric."""
    _time_us, value = samples(node, name)[0]
    return value


@pytest.mark.parametrize(
    ("interval_us", "expected"), [(400, [(400, '{"a":1}'), (800, '{"a":2}')]), (0, [])]
)
def test_samples_are_taken_every_interval_or_never(
    interval_us: int, expected: list[tuple[int, str]]
) -> None:
    """In 1,000 us an interval of 400 us gives two samples. An interval of 0 gives none."""
    lab = HostLab()
    values = iter(({"a": 1}, {"a": 2}, {"a": 3}))
    MetricsSampler(lab.host("n"), lambda: next(values), interval_us=interval_us).start()
    lab.run_for(1_000)
    assert [(row.time_us, row.detail) for row in lab.rows] == expected


@pytest.mark.slow
def test_controller_counts_the_fenced_brokers() -> None:
    """A broker is fenced (counted as dead) while it is down.

    FencedBrokerCount is the number of fenced brokers. It is 1 while the killed broker is down, and
    0 at the end. In spite of its name, LeaderElectionRateAndTimeMs counts fencings and unfencings.
    There are five: three brokers are unfenced at the start, and one of them is fenced after its
    crash and unfenced after its restart.
    """
    rows = crash_run().rows
    fenced_us = next(row.time_us for row in rows if row.kind == TraceKind.BROKER_FENCED)
    fenced_counts = samples("controller-100", "FencedBrokerCount")
    # The first sample after the fencing.
    assert next(count for time_us, count in fenced_counts if time_us >= fenced_us) == 1
    _time_us, count_at_end = fenced_counts[-1]
    assert count_at_end == 0

    # The trace has as many fencings and unfencings, up to the time of the last sample.
    last_sample_us, changes = samples("controller-100", "LeaderElectionRateAndTimeMs.Count")[-1]
    kinds = (TraceKind.BROKER_FENCED, TraceKind.BROKER_UNFENCED)
    assert changes == 5
    assert sum(row.kind in kinds and row.time_us <= last_sample_us for row in rows) == 5
    _time_us, unclean_elections = samples("controller-100", "UncleanLeaderElectionsPerSec.Count")[
        -1
    ]
    assert unclean_elections == 0


@pytest.mark.slow
def test_leaders_of_all_brokers_are_all_partitions() -> None:
    """Each partition has one leader and three replicas, on different brokers.

    So there are three times as many replicas as leaders in the first samples of the three brokers.
    When one of them has crashed, some partitions are under-replicated, which means that they lack a
    replica.
    """
    leaders = [first_value(broker, "LeaderCount") for broker in BROKERS]
    replicas = [first_value(broker, "PartitionCount") for broker in BROKERS]
    assert sum(leaders) > 0
    assert sum(replicas) == 3 * sum(leaders)

    under_replicated = [
        count
        for broker in BROKERS
        for _time_us, count in samples(broker, "UnderReplicatedPartitions")
    ]
    assert under_replicated[0] == 0  # the first sample of broker-0
    assert max(under_replicated) > 0
