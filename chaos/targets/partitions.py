"""Partitions in targets: their names, leaders and followers.

`base` explains what a kind of target does. A partition is named as Kafka prints it, such as
`orders-3`. The functions of this module are for all roles whose argument is a partition, such as
`leader-of(orders-3)`.
"""

from chaos.experiment.problems import near_miss, one_of
from chaos.experiment.structs import Experiment, internal_topics
from chaos.targets.base import (
    Hit,
    Miss,
    Situation,
    TargetKind,
    Unknown,
    check_no_argument,
    target_text,
)
from cluster.runtime import PartitionStatus
from protocol.ids import CONSUMER_OFFSETS, BrokerId, TopicPartition, broker_name

ALL_PARTITIONS = "all-topic-partitions"


class AllTopicPartitions(TargetKind):
    """All partitions that have a leader now, of every topic. The target's nodes are the leaders."""

    name = ALL_PARTITIONS
    syntax = ALL_PARTITIONS
    doc = "every partition of every topic, `__consumer_offsets` included"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument."""
        del experiment
        return check_no_argument(self.name, argument)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return all partitions that have a leader, and the brokers that lead them."""
        # partition -> its leader; the leader is -1 if the partition has none
        leader_of = {
            partition: partition_status.leader
            for partition, partition_status in sorted(situation.status.partitions.items())
            if partition_status.leader >= 0
        }
        if not leader_of:
            return Miss(reason="no partition has a leader")
        leaders = sorted(set(leader_of.values()))
        return Hit(
            nodes=tuple(broker_name(leader) for leader in leaders), partitions=tuple(leader_of)
        )


def parse_partition(text: str) -> TopicPartition | None:
    """Return the partition that `text` names, such as `orders-3`; None if it has another form."""
    # The name of a topic may contain dashes, so the last dash separates the number. `isascii` is
    # needed, because `isdecimal` alone also accepts the digits of other scripts.
    topic, dash, index = text.rpartition("-")
    if not dash or not topic or not (index.isascii() and index.isdecimal()):
        return None
    return TopicPartition(topic, int(index))


def check_partition_name(role: str, argument: str, experiment: Experiment) -> Unknown | None:
    """Return an error if `argument` names no partition of the experiment.

    The partition may belong to a topic of the experiment file, or to an internal topic of Kafka,
    such as `__consumer_offsets`.
    """
    # topic -> number of its partitions
    sizes = {name: topic.partitions for name, topic in experiment.topics.items()}
    sizes.update((name, size) for name, (size, _) in internal_topics(experiment).items())
    partition = parse_partition(argument)
    if partition is None:
        close = near_miss(argument, sizes)
        return Unknown(
            message=f"`{argument}` is no partition" if argument else "names no partition",
            expected="a topic and the number of a partition, such as "
            f"`{next(iter(sizes))}-0` or `{CONSUMER_OFFSETS}-0`",
            near_miss=None if close is None else target_text(role, f"{close}-0"),
        )
    if partition.topic not in sizes:
        close = near_miss(partition.topic, sizes)
        return Unknown(
            message=f"no topic `{partition.topic}` is defined",
            expected=one_of(sizes),
            near_miss=None
            if close is None
            else target_text(role, f"{close}-{partition.partition}"),
        )
    if partition.partition >= sizes[partition.topic]:
        return Unknown(
            message=f"there is no partition {partition}",
            expected=f"a partition from 0 to {sizes[partition.topic] - 1}",
        )
    return None


def check_followers(partition: TopicPartition, experiment: Experiment) -> Unknown | None:
    """Return an error if a partition has only one replica, because it never has a follower then."""
    if len(replicas_at_start(partition, experiment)) > 1:
        return None
    return Unknown(
        message=f"{partition} has a single replica: no broker follows its leader",
        expected="a partition with a replication factor of 2 or more",
    )


def require_leader(partition: TopicPartition, situation: Situation) -> PartitionStatus | Miss:
    """Return what the controller knows of a partition; a Miss if the partition has no leader."""
    partition_status = situation.status.partitions.get(partition)
    if partition_status is None:
        return Miss(reason=f"no controller that answers knows {partition}")
    if partition_status.leader < 0:
        return Miss(reason=f"{partition} has no leader")
    return partition_status


def in_sync_followers(partition_status: PartitionStatus) -> tuple[BrokerId, ...]:
    """Return the in-sync followers of a partition.

    They have the order of the replicas, beginning with the replica after the leader. After the last
    replica, the order goes on with the first. For example, if the replicas are 0, 1 and 2, all in
    sync, and 1 leads, the result is (2, 0).
    """
    replicas, leader = partition_status.replicas, partition_status.leader
    start = replicas.index(leader) + 1 if leader in replicas else 0
    in_order = (*replicas[start:], *replicas[:start])
    return tuple(
        broker for broker in in_order if broker in partition_status.isr and broker != leader
    )


def replicas_at_start(partition: TopicPartition, experiment: Experiment) -> tuple[int, ...]:
    """Return the brokers to which the controller first assigns a partition's replicas.

    The preferred leader comes first. Replica k of partition p is on broker (p + k) mod n. Here n is
    the number of brokers, whose ids are 0 to n - 1. `cluster.spec.TopicSpec` has the same rule for
    topics without explicit assignments.
    """
    brokers = experiment.cluster.brokers
    # `internal` is (number of partitions, number of replicas) for an internal topic, otherwise None
    internal = internal_topics(experiment).get(partition.topic)
    factor = (
        experiment.topics[partition.topic].replication_factor if internal is None else internal[1]
    )
    return tuple((partition.partition + k) % brokers for k in range(factor))
