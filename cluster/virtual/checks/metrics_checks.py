"""Checks of figures: metrics and the cluster's status agree with what the nodes have written.

Nodes write rows about events into the run's trace. MetricsChecks compares a node's samples with
these rows. A sample is a row of kind METRICS, with the values of a node's metrics at one moment.
All counts are compared. Of the times and rates, only those that can be computed from rows are
compared: the longest load of a partition by a coordinator, and the mean rate of a *meter* (a count
of the controller).

StatusChecks compares the status of the cluster (`ClusterStatus`) at the end of a run. Each node
adds its part to the status, from figures that it has counted itself. People watch the status during
a run, and the totals of a run's results come from it. The numbers of produced and consumed records
are counted once more from the rows. The fenced brokers and the partitions are compared with the
controller's metadata.

Source: docs/kafka, BEHAVIOUR 8.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.controller.metadata_image import MetadataImage
from cluster.controller.node import ControllerNode
from cluster.metrics.sensors import DECIMALS, WINDOW_MS
from cluster.runtime import ClusterStatus, NodeState
from cluster.virtual.lives import VirtualLife
from protocol.causes import DeletionCause
from protocol.errors import InvariantViolation
from protocol.ids import NodeName
from protocol.trace import TraceKind, TraceRow

METRICS_CHECK_KINDS = frozenset(
    {
        TraceKind.NODE_STARTED,
        TraceKind.COMMIT_STORED,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.OFFSET_REMOVED,
        TraceKind.ASSIGNMENT_STORED,
        TraceKind.LOAD_STARTED,
        TraceKind.LOAD_COMPLETED,
        TraceKind.BROKER_FENCED,
        TraceKind.BROKER_UNFENCED,
        TraceKind.LEADER_ELECTED,
        TraceKind.METRICS,
    }
)
"""Kinds of rows that MetricsChecks must see."""
STATUS_KINDS = frozenset({TraceKind.RECORDS_PRODUCED, TraceKind.RECORDS_CONSUMED})
"""Kinds of rows that StatusChecks must see."""


@dataclass(slots=True)
class _Life:
    """What one incarnation of a node (its life from a start to its end) has traced.

    Times are microseconds of the node's clock.

    Offsets that are committed together are written by one append, and count as one commit. The keys
    of `commits` are the ids of these appends.

    `loads_begun` has the partitions that are being loaded, each with the time at which the load was
    scheduled. `loads` has the time of the end and the duration of each finished load.
    """

    started_us: int
    commits: dict[int, None] = field(default_factory=dict)
    expirations: int = 0
    deletions: int = 0
    assignments: int = 0
    loads_begun: dict[str, int] = field(default_factory=dict)
    loads: list[tuple[int, int]] = field(default_factory=list)
    broker_changes: int = 0
    unclean_elections: int = 0


class MetricsChecks:
    """Counts what each node traces, and compares the counts with the node's samples."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        """Node -> its present incarnation, or its last incarnation."""

    def observe(self, row: TraceRow) -> None:
        """Take the next row of METRICS_CHECK_KINDS. Raises: InvariantViolation."""
        if row.kind == TraceKind.NODE_STARTED:
            self._lives[row.node] = _Life(started_us=row.node_time_us)
            return
        life = self._lives[row.node]
        match row.kind:
            case TraceKind.COMMIT_STORED | TraceKind.TXN_COMMIT_PENDING:
                # When a transaction ends, its offsets are traced again, without a correlation id.
                # They were counted when they became pending.
                if row.correlation_id is not None:
                    life.commits[row.correlation_id] = None
            case TraceKind.OFFSET_REMOVED if row.cause == DeletionCause.EXPIRED:
                life.expirations += 1
            case TraceKind.OFFSET_REMOVED:
                life.deletions += 1
            case TraceKind.ASSIGNMENT_STORED:
                life.assignments += 1
            case TraceKind.LOAD_STARTED:
                # As in Kafka, a load's duration includes its wait for earlier loads.
                waited_us = _detail_of(row)["wait_us"]
                # A row about a load always has a partition; `or ""` is for mypy.
                life.loads_begun[row.partition or ""] = row.node_time_us - waited_us
            case TraceKind.LOAD_COMPLETED:
                scheduled_us = life.loads_begun.pop(row.partition or "")
                life.loads.append((row.node_time_us, row.node_time_us - scheduled_us))
            # LeaderElectionRateAndTimeMs counts these two changes of brokers, in spite of its
            # name; see `controller_metrics`.
            case TraceKind.BROKER_FENCED | TraceKind.BROKER_UNFENCED:
                life.broker_changes += 1
            case TraceKind.LEADER_ELECTED:
                life.unclean_elections += bool(_detail_of(row).get("unclean"))
            case TraceKind.METRICS:
                self._check(row, life)
            case _:
                pass

    def _check(self, row: TraceRow, life: _Life) -> None:
        """Check a sample of a coordinator or a controller; a sample of replicas is not checked."""
        values = _detail_of(row)
        # The names in a sample show what it is about.
        if "offset-commit-count" in values:
            expected: dict[str, float] = {
                "offset-commit-count": len(life.commits),
                "offset-expiration-count": life.expirations,
                "offset-deletion-count": life.deletions,
                "group-completed-rebalance-count": life.assignments,
            }
            _check_load_time(row, life, values["partition-load-time-max"])
            _check_rates(row, values, expected)
        elif "ActiveControllerCount" in values:
            expected = {
                **_meter("LeaderElectionRateAndTimeMs", life.broker_changes, row, life),
                **_meter("UncleanLeaderElectionsPerSec", life.unclean_elections, row, life),
            }
        else:
            return
        for name, value in expected.items():
            if values[name] != value:
                raise _violation(row, f"{name}: expected {value}, got {values[name]}")


def _meter(name: str, count: int, row: TraceRow, life: _Life) -> dict[str, float]:
    """Return a meter's count, and its mean rate in events per second."""
    # Kafka's clock counts milliseconds, so each time is rounded down before the subtraction.
    elapsed_ms = row.node_time_us // 1_000 - life.started_us // 1_000
    rate = round(count * 1_000 / elapsed_ms, DECIMALS) if elapsed_ms else 0.0
    return {f"{name}.Count": count, f"{name}.MeanRate": rate}


def _check_rates(row: TraceRow, values: dict[str, Any], counts: dict[str, float]) -> None:
    """Check that each count has a rate, which is 0 as long as nothing was counted."""
    for name, count in counts.items():
        rate_name = f"{name.removesuffix('-count')}-rate"
        rate = values.get(rate_name)
        # A rate may fall back to 0 after some time, but it is never above 0 without a count.
        if rate is None or rate < 0 or (rate > 0 and not count):
            raise _violation(row, f"{rate_name} is {rate}, and {name} is {count}")


def _check_load_time(row: TraceRow, life: _Life, longest_ms: float | None) -> None:
    """Check the longest recent load; `longest_ms` is None if the sample has no time of a load.

    The metric keeps each value for at least one window, and for at most three windows: the values
    of a window are dropped two windows after the last of them. So the maximum must be the time of a
    load that has ended in the last three windows. And it must not be shorter than any load that has
    ended in the last window.
    """
    ages_ms = [(row.node_time_us - end_us) / 1_000 for end_us, _ in life.loads]
    times_ms = [took_us / 1_000 for _, took_us in life.loads]
    recent = [took for age, took in zip(ages_ms, times_ms, strict=True) if age < WINDOW_MS]
    kept = [took for age, took in zip(ages_ms, times_ms, strict=True) if age <= 3 * WINDOW_MS]
    # The sample has the time of a kept load, or no time if there is no recent load.
    is_right = longest_ms in kept if longest_ms is not None else not recent
    if not is_right or (recent and longest_ms is not None and longest_ms < max(recent)):
        raise _violation(
            row, f"partition-load-time-max: {longest_ms} ms, recent loads took {kept} ms"
        )


def _violation(row: TraceRow, evidence: str) -> InvariantViolation:
    return InvariantViolation(
        "metrics agree with the rows of their node",
        f"{row.node} incarnation {row.incarnation}: {evidence}",
    )


def _detail_of(row: TraceRow) -> dict[str, Any]:
    detail: dict[str, Any] = msgspec.json.decode(row.detail or "{}")
    return detail


# -- the status -----------------------------------------------------------------------------------


class _Count(msgspec.Struct):
    """The part of a row's detail that is needed here; msgspec skips the other fields."""

    count: int


_COUNT = msgspec.json.Decoder(_Count)


class StatusChecks:
    """Counts the records of each node, and compares them with the status."""

    def __init__(self, lives: Mapping[NodeName, VirtualLife]) -> None:
        self._lives = lives
        self._records: dict[tuple[str, str, int], int] = {}
        """Kind of row, node and incarnation -> number of records in its rows."""

    def observe(self, row: TraceRow) -> None:
        """Take the next row of STATUS_KINDS."""
        key = (row.kind, row.node, row.incarnation)
        count = _COUNT.decode(row.detail or "").count
        self._records[key] = self._records.get(key, 0) + count

    def check(self, status: ClusterStatus) -> None:
        """Compare a status that has just been queried. Raises: InvariantViolation."""
        # Only these nodes have reported. The counts of an incarnation end with it.
        reporting = {
            name: life.host.incarnation
            for name, life in self._lives.items()
            if life.host is not None and status.nodes[name] is not NodeState.PAUSED
        }
        produced = sum(
            self._records.get((TraceKind.RECORDS_PRODUCED, name, incarnation), 0)
            for name, incarnation in reporting.items()
        )
        if status.records_produced != produced:
            raise _status_violation(
                f"{status.records_produced} records acknowledged to producers, and the rows of the "
                f"live producers have {produced}"
            )
        for name, member in status.members.items():
            key = (TraceKind.RECORDS_CONSUMED, name, reporting[name])
            consumed = self._records.get(key, 0)
            if member.records_consumed != consumed:
                raise _status_violation(
                    f"{name} has consumed {member.records_consumed} records, and its rows have "
                    f"{consumed}"
                )
        controller = None if status.controller is None else self._lives[status.controller].node
        if isinstance(controller, ControllerNode):
            _check_metadata(status, controller.image)


def _check_metadata(status: ClusterStatus, image: MetadataImage) -> None:
    """Compare the brokers and partitions of a status with the controller's metadata."""
    fenced = {broker_id: broker.fenced for broker_id, broker in image.brokers.items()}
    if status.brokers_fenced != fenced:
        raise _status_violation(
            f"fenced brokers {status.brokers_fenced}, and in the metadata {fenced}"
        )
    partitions = dict(image.partitions())
    if status.partitions.keys() != partitions.keys():
        raise _status_violation(
            f"partitions {[str(each) for each in status.partitions]}, and in the metadata "
            f"{[str(each) for each in partitions]}"
        )
    for name, partition in partitions.items():
        shown = status.partitions[name]
        if (shown.leader, shown.leader_epoch, shown.replicas, shown.isr) != (
            partition.leader,
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
        ):
            raise _status_violation(f"{name}: {shown}, and in the metadata {partition}")


def _status_violation(evidence: str) -> InvariantViolation:
    return InvariantViolation("the status agrees with the rows and the metadata", evidence)
