"""Metrics of a broker's replicas, which have Kafka's names (docs/kafka, BEHAVIOUR 8.3).

The ISR is the set of a partition's in-sync replicas. The counters of ISR changes are tested in
`test_isr_changes`.
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
    """Return this broker's replica of a partition with this ISR, three replicas and a leader.

    min.insync.replicas is 2: a write with acks=all needs so many in-sync replicas. `checks` says
    whether the replica checks this.
    """
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
    """If followers counted such a partition, the sum over all brokers would count it repeatedly.

    `min_insync_check`, a check that an experiment can switch off, makes no difference.
    """
    # The arguments are the partition's number and the members of its ISR.
    replicas = [
        partition(0, 0, 1, 2, checks=checks),
        partition(1, 0, 1, checks=checks),
        partition(2, 0, checks=checks),
        partition(3, 1, leader=1, checks=checks),
        partition(4, 1, leader=-1, checks=checks),  # -1: the partition has no leader
    ]
    metrics = ReplicaMetrics(
        HostLab().host("broker-0"),
        {replica.topic_partition: replica for replica in replicas},
        interval_us=0,  # no sampling: the test reads the values itself
    )
    values = metrics.values()
    # The broker has five partitions, and leads 0, 1 and 2. The ISRs of 1 and 2 lack replicas, and
    # the ISR of 2 is smaller than min.insync.replicas.
    assert [values[name] for name in GAUGES] == [5, 3, 2, 1]


def test_broker_without_partitions_reports_zero_for_each_metric() -> None:
    """A reader of the metrics finds every name from the start."""
    values = ReplicaMetrics(HostLab().host("broker-0"), {}, interval_us=0).values()
    assert set(values.values()) == {0}
    assert set(GAUGES) < set(values)  # there are all gauges, and other metrics
