"""Samples of metrics: when they are taken, and their values over the run of a whole cluster."""

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
    """Play the experiment coordinator_crash; further calls return the same run."""
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


@pytest.mark.parametrize(
    ("interval_us", "expected"), [(400, [(400, '{"a":1}'), (800, '{"a":2}')]), (0, [])]
)
def test_samples_are_taken_every_interval_or_never(
    interval_us: int, expected: list[tuple[int, str]]
) -> None:
    """In 1,000 us an interval of 400 us gives two samples, and an interval of 0 none."""
    lab = HostLab()
    values = iter(({"a": 1}, {"a": 2}, {"a": 3}))  # one for each sample, and one more
    MetricsSampler(lab.host("n"), lambda: next(values), interval_us=interval_us).start()
    lab.run_for(1_000)
    assert [(row.time_us, row.detail) for row in lab.rows] == expected


@pytest.mark.slow
def test_controller_counts_the_fenced_brokers() -> None:
    """FencedBrokerCount is the number of brokers that are fenced (counted as dead).

    It is 1 in the outage.

    LeaderElectionRateAndTimeMs counts fencings and unfencings. There are five: three brokers are
    unfenced at the start, the killed broker is fenced, and it is unfenced after its restart.
    """
    rows = crash_run().rows
    fenced_us = next(row.time_us for row in rows if row.kind == TraceKind.BROKER_FENCED)
    fenced = samples("controller-100", "FencedBrokerCount")
    assert next(value for at_us, value in fenced if at_us >= fenced_us) == 1
    assert fenced[-1][1] == 0

    # The last sample has the number of changes up to its own time.
    at_us, changes = samples("controller-100", "LeaderElectionRateAndTimeMs.Count")[-1]
    kinds = (TraceKind.BROKER_FENCED, TraceKind.BROKER_UNFENCED)
    assert changes == 5
    assert sum(row.kind in kinds and row.time_us <= at_us for row in rows) == 5
    assert samples("controller-100", "UncleanLeaderElectionsPerSec.Count")[-1][1] == 0


@pytest.mark.slow
def test_leaders_of_all_brokers_are_all_partitions() -> None:
    """Each partition is counted by one leader, and by each of its three replicas.

    After the crash of a broker its partitions lack a replica.
    """
    leaders = [samples(broker, "LeaderCount")[0][1] for broker in BROKERS]
    replicas = [samples(broker, "PartitionCount")[0][1] for broker in BROKERS]
    assert sum(leaders) > 0
    assert sum(replicas) == 3 * sum(leaders)
    # The numbers of under-replicated partitions, broker by broker.
    lacking = [value for b in BROKERS for _, value in samples(b, "UnderReplicatedPartitions")]
    assert lacking[0] == 0
    assert max(lacking) > 0
