"""Elections: the leader and the ISR of a partition after a change.

The functions take the present state of a partition, and return the record that changes it. A clean
election chooses a member of the ISR, which has every acknowledged record. An unclean election may
choose any replica.

Source: Kafka `PartitionChangeBuilder`.
DEVIATION: no eligible leader replicas (KIP-966); an unclean leader is not flagged RECOVERING.
"""

from collections.abc import Callable

from cluster.controller.metadata_image import PartitionRegistration
from protocol.ids import BrokerId, TopicPartition
from protocol.records.metadata import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord


def change_partition(
    name: TopicPartition,
    partition: PartitionRegistration,
    *,
    target_isr: tuple[BrokerId, ...],
    is_acceptable_leader: Callable[[BrokerId], bool],
    unclean: bool,
) -> PartitionChangeRecord | None:
    """Return the record that sets the ISR to `target_isr` and elects a leader; None if no change.

    `is_acceptable_leader` returns True for a broker that may lead. If no member of `target_isr` may
    lead, the result depends on `unclean`. If `unclean` is True, the first of all replicas that may
    lead becomes the leader and the only member of the ISR. If `unclean` is False, or no replica may
    lead, the partition has no leader.

    An ISR must never become empty. If `target_isr` is empty, the ISR stays as it is, but none of
    its members is elected.
    """
    isr = target_isr or partition.isr
    # `target_isr` and not `isr`: a broker must not lead if it stays in the ISR only because the
    # ISR would be empty without it.
    leader = _elect(partition, target_isr, is_acceptable_leader)
    if leader == NO_LEADER and unclean:
        leader = next(filter(is_acceptable_leader, partition.replicas), BrokerId(NO_LEADER))
        if leader != NO_LEADER:
            isr = (leader,)
    if leader == partition.leader and isr == partition.isr:
        return None
    return PartitionChangeRecord(
        topic=name.topic,
        partition_id=name.partition,
        # None and NO_LEADER_CHANGE stand for a value that stays as it is.
        isr=None if isr == partition.isr else isr,
        leader=NO_LEADER_CHANGE if leader == partition.leader else leader,
    )


def elect_preferred_leader(
    name: TopicPartition,
    partition: PartitionRegistration,
    *,
    is_acceptable_leader: Callable[[BrokerId], bool],
) -> PartitionChangeRecord | None:
    """Return the record that makes the preferred replica the leader.

    The preferred replica is the first replica of the assignment. Returns None if the preferred
    replica leads already, is not in the ISR, or may not lead.
    """
    preferred = partition.replicas[0]
    if partition.leader == preferred or preferred not in partition.isr:
        return None
    if not is_acceptable_leader(preferred):
        return None
    return PartitionChangeRecord(topic=name.topic, partition_id=name.partition, leader=preferred)


def _elect(
    partition: PartitionRegistration,
    isr: tuple[BrokerId, ...],
    is_acceptable_leader: Callable[[BrokerId], bool],
) -> BrokerId:
    """Return the leader of a clean election.

    This is the current leader if it is in `isr` and may lead. Otherwise it is the first replica,
    in the order of the assignment, that is in `isr` and may lead. Without such a replica it is
    NO_LEADER.
    """
    if partition.leader in isr and is_acceptable_leader(partition.leader):
        return partition.leader
    for replica in partition.replicas:
        if replica in isr and is_acceptable_leader(replica):
            return replica
    return BrokerId(NO_LEADER)
