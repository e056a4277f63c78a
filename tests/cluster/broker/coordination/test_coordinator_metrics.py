"""Metrics of the coordinator, which have Kafka's names and are sampled into the trace.

The trace is the run's recorded rows of events. A sample is a row METRICS, whose detail has the
figures by name. Kafka's metrics are in docs/kafka, BEHAVIOUR 8.3. Ids such as MM-67 are scenarios
of Kafka's own tests (BEHAVIOUR 10).

Most tests read one run, in which the coordinator of group orders-readers crashes. Another broker
then loads the group.
"""

import json
from functools import cache
from itertools import pairwise

import pytest
from msgspec.structs import replace

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from cluster.broker.coordination.coordinator_metrics import CoordinatorMetrics
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Verdict
from tests.support.harness.coordinator_harness import CoordinatorHarness
from tests.support.harness.virtual_hosts import HostLab
from tests.support.worlds.acceptance import VirtualRun, play_virtual

pytestmark = pytest.mark.slow


@cache
def crash_run() -> VirtualRun:
    """Play the experiment coordinator_crash; further calls return the same run."""
    return play_virtual(
        load_experiment("coordinator_crash").experiment, seed=7, trace_messages=False
    )


def samples(run: VirtualRun, node: str) -> list[dict[str, float]]:
    """Return the figures of a broker's coordinator samples, the earliest first."""
    return [json.loads(row.detail or "{}") for row in sampled(run, node)]


def sampled(run: VirtualRun, node: str | None = None) -> list[TraceRow]:
    """Return the rows of the coordinator samples of one broker, or of all brokers.

    A broker also writes other samples. Only those of its coordinator have the figure NumGroups.
    """
    return [
        row
        for row in run.rows
        if row.kind == TraceKind.METRICS
        and node in (None, row.node)
        and "NumGroups" in (row.detail or "")
    ]


def first_group_row(run: VirtualRun, kind: TraceKind) -> TraceRow:
    """Return the first row of a kind that a broker wrote about the group."""
    return next(row for row in run.rows if row.kind == kind and row.group == "orders-readers")


def test_every_broker_samples_every_ten_seconds() -> None:
    """The default interval of a cluster's metrics is ten seconds.

    The intervals begin anew when a broker restarts. So the test takes the rows of one incarnation
    (life) of broker 0.
    """
    rows = sampled(crash_run())
    times = [row.time_us for row in rows if row.node == "broker-0" and row.incarnation == 0]
    assert len(times) > 2  # or there would be no two intervals to compare
    assert {later - before for before, later in pairwise(times)} == {10_000_000}
    assert {row.node for row in rows} == {"broker-0", "broker-1", "broker-2"}


def test_gauges_count_the_group_at_its_coordinator() -> None:
    """A gauge is a figure of the present state, such as the number of groups.

    Before the failover the first coordinator counts the group, and afterwards the next one.
    """
    run = crash_run()
    before = first_group_row(run, TraceKind.ASSIGNMENT_STORED).node
    after = first_group_row(run, TraceKind.GROUP_LOADED).node
    assert before != after
    first, last = samples(run, before)[0], samples(run, after)[-1]

    # The group has twelve members and twelve partitions. A member's session timer counts as a
    # delayed operation of the kind Heartbeat.
    for sample in (first, last):
        assert sample["NumGroups"] == sample["NumGroupsStable"] == 1
        assert sample["NumOffsets"] == 12
        for size in ("NumDelayedOperations", "PurgatorySize"):
            assert sample[f"Heartbeat.{size}"] == 12
            assert sample[f"Rebalance.{size}"] == 0
    assert samples(run, after)[0]["NumGroups"] == 0  # before the failover
    assert sum(sample["NumGroupsDead"] for sample in samples(run, after)) == 0


def test_counts_equal_the_rows_of_the_trace() -> None:
    """A commit counts once, although the trace has a row for each of its offsets.

    The old coordinator counts the rebalance of the first generation, and the new one counts none.
    """
    run = crash_run()
    after = first_group_row(run, TraceKind.GROUP_LOADED).node
    last_sample_us = sampled(run, after)[-1].time_us
    # All rows of one commit have the correlation id of its request.
    commits = {
        row.correlation_id
        for row in run.rows
        if row.kind == TraceKind.COMMIT_STORED
        and row.node == after
        and row.time_us <= last_sample_us
    }
    sample = samples(run, after)[-1]
    assert len(commits) > 100  # enough commits for a comparison
    assert sample["offset-commit-count"] == len(commits)
    assert 0 < sample["offset-commit-rate"] < len(commits)  # commits per second
    assert sample["group-completed-rebalance-count"] == 0
    # The first samples are from the time before the crash.
    first_samples = [samples(run, node)[0] for node in ("broker-0", "broker-1", "broker-2")]
    assert sum(sample["group-completed-rebalance-count"] for sample in first_samples) == 1


def test_load_time_includes_the_wait_and_is_missing_before_the_first_load() -> None:
    """The time counts from the scheduling of the load, so it includes the wait in the queue.

    Before the first load the values are missing; Kafka answers NaN.

    MM-67: time of a load is measured from its scheduling
    """
    run = crash_run()
    loads = [row for row in run.rows if row.kind == TraceKind.LOAD_COMPLETED]
    group_loaded = first_group_row(run, TraceKind.GROUP_LOADED)
    (load,) = [
        row
        for row in loads
        if (row.node, row.partition) == (group_loaded.node, group_loaded.partition)
    ]
    scheduled = [
        row
        for row in run.rows
        if row.kind == TraceKind.LOAD_SCHEDULED
        and (row.node, row.partition) == (load.node, load.partition)
    ]

    took_ms = (load.time_us - scheduled[-1].time_us) / 1_000
    sample = next(
        json.loads(row.detail or "{}")
        for row in sampled(run, group_loaded.node)
        if row.time_us > load.time_us
    )
    assert took_ms > 0
    assert sample["partition-load-time-max"] >= took_ms
    assert sample["partition-load-time-avg"] <= sample["partition-load-time-max"]

    without_loads = CoordinatorMetrics(
        HostLab().host("broker-0"), CoordinatorHarness().coordinator, interval_us=0
    )
    values = without_loads.values()
    assert [name for name, value in values.items() if value is None] == [
        "partition-load-time-max",
        "partition-load-time-avg",
    ]


def test_sample_interval_of_zero_disables_samples() -> None:
    """Samples can be switched off, and the run still passes."""
    experiment = load_experiment("coordinator_crash").experiment
    quiet: Experiment = replace(
        experiment, cluster=replace(experiment.cluster, metrics_interval="0s")
    )
    run = play_virtual(quiet, seed=7, trace_messages=False)
    assert run.results.verdict is Verdict.PASS
    assert not [row for row in run.rows if row.kind == TraceKind.METRICS]
