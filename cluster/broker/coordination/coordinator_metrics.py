"""Metrics of Kafka's group coordinator, under Kafka's names, sampled into the trace.

A sample is a trace row with the values of all metrics. Rates and counts, such as
offset-commit-rate, come from the events that the coordinator traces (`observe`). Other metrics,
such as NumGroups, are counted when the sample is taken. Without a load in the last 30 to 60 s,
there is no load time. Kafka's value is then NaN, and the value in the sample is None.

A purgatory is Kafka's list of delayed operations. PurgatorySize and NumDelayedOperations are both
the number of waiting operations here. In Kafka, PurgatorySize also includes up to 1,000 completed
operations that are not purged yet.

Source: Kafka `GroupCoordinatorMetrics` (group-coordinator-metrics), `GroupMetadataManager`,
`DelayedOperationPurgatory`; docs/kafka, BEHAVIOUR 8.3.
"""

import math

from cluster.host.host import Host
from cluster.metrics.sampler import MetricsSampler
from cluster.metrics.sensors import DECIMALS, SampledSensor
from coordinator.coordinator import GroupCoordinator
from coordinator.states import GroupState
from protocol.causes import DeletionCause
from protocol.trace import TraceEvent, TraceKind

COUNTED_GROUP_EVENTS = frozenset(
    {
        TraceKind.COMMIT_STORED,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.OFFSET_REMOVED,
        TraceKind.ASSIGNMENT_STORED,
    }
)
"""Kinds of trace events that `observe` counts."""
_SENSORS = (
    "offset-commit",
    "offset-expiration",
    "offset-deletion",
    "group-completed-rebalance",
)
"""Kafka's names of the sensors that count events. Each sensor has two metrics, a rate and a count.
"""


class CoordinatorMetrics:
    """The metrics of one coordinator. Rates are per second, times are in milliseconds."""

    def __init__(self, host: Host, coordinator: GroupCoordinator, *, interval_us: int) -> None:
        self._host = host
        self._coordinator = coordinator
        self._sampler = MetricsSampler(host, self.values, interval_us=interval_us)
        self._sensors = {name: SampledSensor() for name in _SENSORS}
        self._load_time = SampledSensor()
        self._last_commit: int | None = None
        """Correlation id (in the trace) of the commit that the sensor offset-commit counted last.
        """

    def start(self) -> None:
        """Take a sample every interval from now on; an interval of 0 means never."""
        self._sampler.start()

    def observe(self, event: TraceEvent) -> None:
        """Count an event of COUNTED_GROUP_EVENTS."""
        match event.kind:
            case TraceKind.COMMIT_STORED | TraceKind.TXN_COMMIT_PENDING:
                # Kafka's Scala coordinator counts commits here and not offsets. A commit of three
                # offsets is traced as three events in a row with the same correlation id; only the
                # first event is counted. When a transaction ends, its offsets are traced once more,
                # without a correlation id. Their commit was counted when they became pending.
                if event.correlation_id not in {None, self._last_commit}:
                    self._last_commit = event.correlation_id
                    self._record("offset-commit")
            case TraceKind.OFFSET_REMOVED:
                self._record(
                    "offset-expiration"
                    if event.cause == DeletionCause.EXPIRED
                    else "offset-deletion"
                )
            case TraceKind.ASSIGNMENT_STORED:
                self._record("group-completed-rebalance")
            case _:
                pass

    def loaded(self, waited_and_loaded_us: int) -> None:
        """Record the time of a load, from the moment it was queued to its end."""
        self._load_time.record(waited_and_loaded_us / 1_000, self._now_ms())

    def values(self) -> dict[str, float | None]:
        """Return every metric by Kafka's name, None for NaN."""
        now_ms = self._now_ms()
        values: dict[str, float | None] = {
            "partition-load-time-max": _or_none(self._load_time.max(now_ms)),
            "partition-load-time-avg": _or_none(self._load_time.average(now_ms)),
        }
        # Rates are rounded, like all rates in the trace.
        for name, sensor in self._sensors.items():
            values[f"{name}-rate"] = round(sensor.rate(now_ms), DECIMALS)
            values[f"{name}-count"] = sensor.count
        sizes = self._coordinator.sizes()
        values["NumOffsets"] = sizes.offsets
        values["NumGroups"] = sum(sizes.groups.values())
        for state in GroupState:
            values[f"NumGroups{state.value}"] = sizes.groups.get(state, 0)
        for purgatory, waiting in (
            ("Heartbeat", sizes.heartbeats),
            ("Rebalance", sizes.rebalances),
        ):
            values[f"{purgatory}.PurgatorySize"] = waiting
            values[f"{purgatory}.NumDelayedOperations"] = waiting
        return values

    def _record(self, name: str) -> None:
        self._sensors[name].record(1, self._now_ms())

    def _now_ms(self) -> int:
        return self._host.now_us() // 1_000


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
