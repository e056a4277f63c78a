"""Metrics of a broker's replicas, under Kafka's names, sampled into the trace.

A sample is a trace row with the values of all metrics. Numbers of partitions are counted when the
sample is taken. A change of an ISR is counted when the leader learns that the controller has
committed the change.

Source: Kafka `ReplicaManager`, `Partition.handleAlterPartitionUpdate`; docs/kafka, BEHAVIOUR 8.3.
"""

from collections.abc import Mapping

from cluster.broker.replication.fetch_reader import PartitionKey
from cluster.host.host import Host
from cluster.metrics.sampler import MetricsSampler
from cluster.metrics.sensors import Meter
from partition_log.outcomes import IsrProposal
from partition_log.replica import Partition


class ReplicaMetrics:
    """The metrics of a broker's replicas. Rates are in events per second."""

    def __init__(
        self, host: Host, partitions: Mapping[PartitionKey, Partition], *, interval_us: int
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._sampler = MetricsSampler(host, self.values, interval_us=interval_us)
        self._isr_shrinks = Meter(self._now_ms())
        self._isr_expands = Meter(self._now_ms())

    def start(self) -> None:
        """Take a sample every interval from now on; an interval of 0 means never."""
        self._sampler.start()

    def isr_changed(self, proposal: IsrProposal) -> None:
        """Count a change of an ISR that this broker has proposed and the controller committed."""
        # As in Kafka, a proposal either removes replicas or adds one.
        meter = self._isr_shrinks if proposal.removed else self._isr_expands
        meter.mark(self._now_ms())

    def values(self) -> dict[str, float]:
        """Return every metric by Kafka's name."""
        now_ms = self._now_ms()
        leading = [each for each in self._partitions.values() if each.is_leader]
        return {
            "PartitionCount": len(self._partitions),
            "LeaderCount": len(leading),
            "UnderReplicatedPartitions": sum(len(p.isr) < len(p.replicas) for p in leading),
            # Not `Partition.is_under_min_isr`, which is always False if an experiment has switched
            # off the guard `min_insync_check`.
            "UnderMinIsrPartitionCount": sum(len(p.isr) < p.effective_min_isr for p in leading),
            # Each meter has several metrics: a count and rates.
            **self._isr_shrinks.attributes("IsrShrinksPerSec", now_ms),
            **self._isr_expands.attributes("IsrExpandsPerSec", now_ms),
        }

    def _now_ms(self) -> int:
        return self._host.now_us() // 1_000
