"""Metrics of Kafka's controller, under Kafka's names, sampled into the trace.

A sample is a trace row with the values of all metrics. Numbers of brokers are counted in the
metadata (`image`) when the sample is taken. Rates come from events that the controller traces
(`observe`).

LeaderElectionRateAndTimeMs counts how often a broker was fenced or unfenced, even if no leader
changed. Kafka's old controller, with ZooKeeper, counts in this way; the KRaft controller has no
such metric. The times of elections are missing, because a decision takes no time here. docs/kafka
(BEHAVIOUR 8.3) describes all metrics.

Source: Kafka `QuorumControllerMetrics`, `ControllerMetadataMetrics`; `ControllerState.BrokerChange`
of the ZooKeeper controller.
"""

from cluster.controller.metadata_image import MetadataImage
from cluster.host.host import Host
from cluster.metrics.sampler import MetricsSampler
from cluster.metrics.sensors import Meter
from protocol.trace import TraceEvent, TraceKind

COUNTED_CONTROLLER_EVENTS = frozenset(
    {TraceKind.BROKER_FENCED, TraceKind.BROKER_UNFENCED, TraceKind.LEADER_ELECTED}
)
"""Kinds of trace events that `observe` counts."""


class ControllerMetrics:
    """The metrics of a controller. Rates are in events per second."""

    def __init__(self, host: Host, image: MetadataImage, *, interval_us: int) -> None:
        self._host = host
        self._image = image
        self._sampler = MetricsSampler(host, self.values, interval_us=interval_us)
        self._broker_changes = Meter(self._now_ms())  # for LeaderElectionRateAndTimeMs
        self._unclean_elections = Meter(self._now_ms())

    def start(self) -> None:
        """Take a sample every interval from now on; an interval of 0 means never."""
        self._sampler.start()

    def observe(self, event: TraceEvent) -> None:
        """Count an event of COUNTED_CONTROLLER_EVENTS."""
        match event.kind:
            case TraceKind.BROKER_FENCED | TraceKind.BROKER_UNFENCED:
                self._broker_changes.mark(self._now_ms())
            case TraceKind.LEADER_ELECTED if event.detail and event.detail.get("unclean"):
                self._unclean_elections.mark(self._now_ms())
            case _:
                pass  # Clean elections have no metric here.

    def values(self) -> dict[str, float]:
        """Return every metric by Kafka's name."""
        now_ms = self._now_ms()
        brokers = self._image.brokers.values()
        fenced = sum(broker.fenced for broker in brokers)
        return {
            # Always 1, even if another controller has taken over meanwhile. Kafka's controller,
            # too, believes for some time after a pause that it is still active.
            "ActiveControllerCount": 1,
            "FencedBrokerCount": fenced,
            "ActiveBrokerCount": len(brokers) - fenced,
            # Each meter has several metrics: a count and rates.
            **self._broker_changes.attributes("LeaderElectionRateAndTimeMs", now_ms),
            **self._unclean_elections.attributes("UncleanLeaderElectionsPerSec", now_ms),
        }

    def _now_ms(self) -> int:
        return self._host.now_us() // 1_000
