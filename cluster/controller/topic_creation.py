"""Topics of the cluster's plan become records, once every broker of the plan is there.

Source: Kafka `ReplicationControlManager.createTopic`, `StripedReplicaPlacer` (without racks).
DEVIATION: Kafka creates `__consumer_offsets` when it is first asked for, and spreads replicas from
a random start; here the plan's topics are created together, and partition p begins at broker p.
"""

from cluster.controller.metadata_image import MetadataImage, topic_config_records
from cluster.spec import BrokerSpec, TopicSpec
from protocol.ids import BrokerId
from protocol.records.metadata import MetadataRecord, PartitionRecord, TopicRecord


def replica_assignment(
    topic: TopicSpec, partition: int, brokers: tuple[BrokerSpec, ...]
) -> tuple[int, ...]:
    """Return the replicas of a new partition, preferred leader first.

    Shape: with an explicit assignment that one, else brokers (partition + k) mod n.
    """
    if topic.assignments:
        return topic.assignments[partition]
    return tuple(
        brokers[(partition + k) % len(brokers)].broker_id for k in range(topic.replication_factor)
    )


def create_missing_topics(
    image: MetadataImage, topics: tuple[TopicSpec, ...], brokers: tuple[BrokerSpec, ...]
) -> list[MetadataRecord]:
    """Return the records that create the topics that never existed, all brokers being active.

    Nothing while a broker of the plan is missing or fenced: a new partition begins with its whole
    assignment in the ISR.
    """
    missing = [
        topic
        for topic in topics
        if topic.name not in image.topics and topic.name not in image.deleted_topics
    ]
    if not missing or not all(image.is_active(BrokerId(b.broker_id)) for b in brokers):
        return []
    records: list[MetadataRecord] = []
    for topic in missing:
        records.append(TopicRecord(name=topic.name))
        records.extend(topic_config_records(topic.name, topic.config))
        for partition in range(topic.partitions):
            replicas = replica_assignment(topic, partition, brokers)
            records.append(
                PartitionRecord(
                    topic=topic.name,
                    partition_id=partition,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                )
            )
    return records
