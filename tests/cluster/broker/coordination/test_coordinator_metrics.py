"""Metrics of the group coordinator, which have Kafka's names (docs/kafka, BEHAVIOUR 8.3).

Every ten seconds each broker records the values of its metrics, for instance
`{"NumGroups": 1, "NumOffsets": 12, ...}`. Such a sample is a row of the run's trace, the list of
all recorded events.

Most tests read one run, in which the coordinator of group orders-readers crashes. Another broker
then loads the group. Ids such as MM-67 are scenarios of Kafka's own tests (BEHAVIOUR 10).
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
    """Return the samples of the coordinator on a broker, the earliest first: name -> value."""
    return [json.loads(row.detail or "{}") for row in sample_rows(run, node)]


def sample_rows(run: VirtualRun, node: str | None = None) -> list[TraceRow]:
    """Return the rows with the samples of coordinators, of one broker or of all."""
    # A broker also samples other metrics. Only a sample of its coordinator's metrics has NumGroups.
    return [
        row
        for row in run.rows
        if row.kind == TraceKind.METRICS
        and node in (None, row.node)
        and "NumGroups" in (row.detail or "")
    ]


def first_group_row(run: VirtualRun, kind: TraceKind) -> TraceRow:
    """Return the first row of a kind about group orders-readers."""
    return next(row for row in run.rows if row.kind == kind and row.group == "orders-readers")


def test_every_broker_samples_every_ten_seconds() -> None:
    """The default interval of a cluster's metrics is ten seconds."""
    rows = sample_rows(crash_run())
    # Broker 0 until its first restart. The intervals begin anew when a broker restarts.
    times_us = [row.time_us for row in rows if row.node == "broker-0" and row.incarnation == 0]
    assert len(times_us) > 2  # or there would be no two intervals to compare
    assert {later - earlier for earlier, later in pairwise(times_us)} == {10_000_000}
    assert {row.node for row in rows} == {"broker-0", "broker-1", "broker-2"}


def test_gauges_count_the_group_at_its_coordinator() -> None:
    """Before the failover the first coordinator counts the group, and afterwards the next one."""
    run = crash_run()
    first_coordinator = first_group_row(run, TraceKind.ASSIGNMENT_STORED).node
    next_coordinator = first_group_row(run, TraceKind.GROUP_LOADED).node
    assert first_coordinator != next_coordinator
    before_failover = samples(run, first_coordinator)[0]
    after_failover = samples(run, next_coordinator)[-1]

    # The group has twelve members and twelve partitions. A member's session timer counts as a
    # delayed operation of the kind Heartbeat.
    for sample in (before_failover, after_failover):
        assert sample["NumGroups"] == sample["NumGroupsStable"] == 1
        assert sample["NumOffsets"] == 12
        for size in ("NumDelayedOperations", "PurgatorySize"):
            assert sample[f"Heartbeat.{size}"] == 12
            assert sample[f"Rebalance.{size}"] == 0
    # Before the failover the next coordinator counts no group. It never counts a dead group: a
    # group is dead only when it is being removed, and orders-readers lives on.
    assert samples(run, next_coordinator)[0]["NumGroups"] == 0
    assert all(sample["NumGroupsDead"] == 0 for sample in samples(run, next_coordinator))


def test_counts_equal_the_rows_of_the_trace() -> None:
    """The coordinators count the commits and the rebalances that the trace shows."""
    run = crash_run()
    next_coordinator = first_group_row(run, TraceKind.GROUP_LOADED).node
    last_sample_us = sample_rows(run, next_coordinator)[-1].time_us
    # A commit counts once, although the trace has a row for each of its offsets. All rows of one
    # commit have the correlation id of its request.
    commits = {
        row.correlation_id
        for row in run.rows
        if row.kind == TraceKind.COMMIT_STORED
        and row.node == next_coordinator
        and row.time_us <= last_sample_us
    }
    last_sample = samples(run, next_coordinator)[-1]
    assert len(commits) > 100  # enough commits for a comparison
    assert last_sample["offset-commit-count"] == len(commits)
    assert 0 < last_sample["offset-commit-rate"] < len(commits)  # commits per second

    # The group rebalances only once, when it forms at the first coordinator. So the next
    # coordinator counts no rebalance. The first samples are from the time before the crash.
    assert last_sample["group-completed-rebalance-count"] == 0
    first_samples = [samples(run, node)[0] for node in ("broker-0", "broker-1", "broker-2")]
    assert sum(sample["group-completed-rebalance-count"] for sample in first_samples) == 1


def test_load_time_includes_the_wait_and_is_missing_before_the_first_load() -> None:
    """The time of a load counts from its scheduling, so it includes the wait in the queue.

    Before the first load these metrics have no value. In Kafka they are NaN then.

    MM-67: time of a load is measured from its scheduling
    """
    run = crash_run()
    loads = [row for row in run.rows if row.kind == TraceKind.LOAD_COMPLETED]
    group_loaded = first_group_row(run, TraceKind.GROUP_LOADED)
    # The load of the group's partition by the next coordinator.
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
    assert took_ms > 0

    samples_after_load = [
        json.loads(row.detail or "{}")
        for row in sample_rows(run, group_loaded.node)
        if row.time_us > load.time_us
    ]
    sample = samples_after_load[0]
    # The maximum is larger than the time of this load if the load of another partition took longer.
    assert sample["partition-load-time-max"] >= took_ms
    assert sample["partition-load-time-avg"] <= sample["partition-load-time-max"]

    # The coordinator of a CoordinatorHarness has no cluster, and its metrics have timed no load.
    metrics_without_loads = CoordinatorMetrics(
        HostLab().host("broker-0"), CoordinatorHarness().coordinator, interval_us=0
    )
    values = metrics_without_loads.values()
    assert [name for name, value in values.items() if value is None] == [
        "partition-load-time-max",
        "partition-load-time-avg",
    ]


def test_sample_interval_of_zero_disables_samples() -> None:
    """The run without samples still passes."""
    experiment = load_experiment("coordinator_crash").experiment
    without_samples: Experiment = replace(
        experiment, cluster=replace(experiment.cluster, metrics_interval="0s")
    )
    run = play_virtual(without_samples, seed=7, trace_messages=False)
    assert run.results.verdict is Verdict.PASS
    assert not [row for row in run.rows if row.kind == TraceKind.METRICS]
