"""Metrics of a broker's replicas, which have Kafka's names (docs/kafka, BEHAVIOUR 8.3).

The tests here are about gauges, such as the number of partitions that a broker leads. The counters
of ISR changes are tested in `test_isr_changes`.
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


def partition(index: int, *isr: int, leader: int = ME, min_insync_check: bool = True) -> Partition:
    """Return the replica that broker ME has of the partition `index` of orders.

    Example: `partition(1, 0, 2)` is partition 1, whose ISR is the brokers 0 and 2.
    """
    name = TopicPartition("orders", index)
    config = ReplicaConfig(min_insync_replicas=2, min_insync_check=min_insync_check)
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


@pytest.mark.parametrize("min_insync_check", [True, False])
def test_under_replicated_partition_is_counted_by_its_leader_only(min_insync_check: bool) -> None:
    """If followers counted such a partition, too, the sum over all brokers would be too high.

    When a producer writes, a leader checks that the ISR has min.insync.replicas. An experiment can
    switch off this check. The metrics count the same partitions then.
    """
    replicas = [
        partition(0, 0, 1, 2, min_insync_check=min_insync_check),  # a full ISR
        partition(1, 0, 1, min_insync_check=min_insync_check),
        partition(2, 0, min_insync_check=min_insync_check),  # fewer than min.insync.replicas, 2
        partition(3, 1, leader=1, min_insync_check=min_insync_check),  # another broker leads
        partition(4, 1, leader=-1, min_insync_check=min_insync_check),  # -1: no leader
    ]
    metrics = ReplicaMetrics(
        HostLab().host("broker-0"),
        {replica.topic_partition: replica for replica in replicas},
        interval_us=0,  # no sampling: the test reads the values itself
    )
    values = metrics.values()
    # Of the five partitions the broker leads 0, 1 and 2. It counts 1 and 2 as under-replicated, and
    # 2 as under min.insync.replicas.
    assert {name: values[name] for name in GAUGES} == {
        "PartitionCount": 5,
        "LeaderCount": 3,
        "UnderReplicatedPartitions": 2,
        "UnderMinIsrPartitionCount": 1,
    }


def test_broker_without_partitions_reports_zero_for_each_metric() -> None:
    """The metrics have all their names from the start, before the broker has a partition."""
    values = ReplicaMetrics(HostLab().host("broker-0"), {}, interval_us=0).values()
    assert set(values.values()) == {0}
    assert set(GAUGES) < set(values)  # there are all gauges, and other metrics
