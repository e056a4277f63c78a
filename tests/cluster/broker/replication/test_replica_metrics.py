"""Metrics of a broker's replicas under Kafka's names (docs/kafka, BEHAVIOUR 8.3).

`test_isr_changes` tests the counters of ISR changes.
"""

import pytest

from cluster.broker.replication.replica_metrics import ReplicaMetrics
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import ReplicaConfig
from partition_log.replica import Partition
from protocol.ids import BrokerId, TopicPartition
from tests.support.harness.virtual_hosts import HostLab

ME = BrokerId(0)
REPLICAS = (BrokerId(0), BrokerId(1), BrokerId(2))
GAUGES = (
    "PartitionCount",
    "LeaderCount",
    "UnderReplicatedPartitions",
    "UnderMinIsrPartitionCount",
)


def partition(index: int, *isr: int, leader: int = ME, checks: bool = True) -> Partition:
    """Return this broker's replica of a partition: three replicas, min.insync.replicas of 2."""
    name = TopicPartition("orders", index)
    config = ReplicaConfig(min_insync_replicas=2, min_insync_check=checks)
    replica = Partition(name, ME, PartitionLog(name, MemoryLogStorage()), config)
    members = tuple(BrokerId(member) for member in isr)
    if leader == ME:
        replica.make_leader(
            leader_epoch=1, partition_epoch=1, replicas=REPLICAS, isr=members, now_us=0
        )
    else:
        replica.make_follower(
            leader_id=BrokerId(leader),
            leader_epoch=1,
            partition_epoch=1,
            replicas=REPLICAS,
            isr=members,
        )
    return replica


@pytest.mark.parametrize("checks", [True, False])
def test_partition_that_lacks_replicas_is_counted_by_its_leader_only(checks: bool) -> None:
    """If the followers counted it, too, the sum over all brokers would count it several times.

    The guard `min_insync_check` makes no difference.
    """
    replicas = [
        partition(0, 0, 1, 2, checks=checks),
        partition(1, 0, 1, checks=checks),
        partition(2, 0, checks=checks),
        partition(3, 1, leader=1, checks=checks),
        partition(4, 1, leader=-1, checks=checks),  # without a leader
    ]
    metrics = ReplicaMetrics(
        HostLab().host("broker-0"),
        {replica.topic_partition: replica for replica in replicas},
        interval_us=0,  # no sampling: the test reads the values itself
    )
    values = metrics.values()
    # Five partitions, of which this broker leads 0, 1 and 2. Of these, 1 and 2 lack a replica in
    # their ISR, and the ISR of 2 is below min.insync.replicas.
    assert [values[name] for name in GAUGES] == [5, 3, 2, 1]


def test_broker_without_partitions_reports_zero_for_each_metric() -> None:
    """Every name exists from the start."""
    values = ReplicaMetrics(HostLab().host("broker-0"), {}, interval_us=0).values()
    assert set(values.values()) == {0}
    assert set(GAUGES) < set(values)
