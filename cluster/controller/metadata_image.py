"""The metadata image: the state that results from replaying `__cluster_metadata-0`.

The controller writes every change of the cluster to this log, and brokers fetch it. The controller
and each broker have an image. The controller's image is always up to date. A broker's image may be
older. Only `replay` changes an image.

Source: Kafka `MetadataImage`, `ClusterControlManager.replay`,
`ReplicationControlManager.replay`.
"""

from dataclasses import dataclass

import msgspec

from protocol.config import TopicConfig
from protocol.errors import SimulationError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from protocol.records.metadata import (
    NO_LEADER_CHANGE,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """What the metadata says of a broker.

    `broker_epoch` is the offset of the RegisterBrokerRecord of this registration.
    """

    broker_id: BrokerId
    incarnation_id: int
    broker_epoch: BrokerEpoch
    host: str
    port: int
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    end_points: tuple[BrokerEndpoint, ...] = ()
    """Listeners for Kafka clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """What the metadata says of a partition.

    `replicas` are in the order of the assignment, the preferred leader first. `isr` is never empty.
    `leader` is a member of `isr`, or NO_LEADER (-1). The leader epoch grows with each election, the
    partition epoch with each change of the partition.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


class MetadataImage:
    """The brokers, and the topics with their settings and partitions, as of `end_offset`."""

    def __init__(self) -> None:
        self.end_offset = 0
        """Offset of the next record to replay."""
        self.next_producer_id = 0
        """First producer id that is in no broker's block."""
        self.brokers: dict[BrokerId, BrokerRegistration] = {}
        """All brokers that were ever registered, each with its last registration."""
        self.topics: dict[str, list[PartitionRegistration]] = {}
        """The partitions of each topic by index."""
        self.topic_offsets: dict[str, int] = {}
        """Offset of the record that created each topic.

        The offset distinguishes a topic from an earlier topic of the same name. Kafka has topic ids
        for this.
        """
        self.topic_configs: dict[str, TopicConfig] = {}
        """Settings of the topics that have settings of their own."""
        self.deleted_topics: dict[str, None] = {}
        """The names of deleted topics, as the keys of the dict.

        `create_missing_topics` must not create them again.
        """

    def partition(self, partition: TopicPartition) -> PartitionRegistration | None:
        """Return the registration of `partition`, None if there is no such partition."""
        partitions = self.topics.get(partition.topic)
        # A client may ask for a negative index, which Python would count from the end.
        if partitions is None or not 0 <= partition.partition < len(partitions):
            return None
        return partitions[partition.partition]

    def partitions(self) -> list[tuple[TopicPartition, PartitionRegistration]]:
        """Return every partition, in the order of creation."""
        return [
            (TopicPartition(topic, index), registration)
            for topic, partitions in self.topics.items()
            for index, registration in enumerate(partitions)
        ]

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the topic's own settings."""
        return self.topic_configs.get(topic, _NO_CONFIG)

    def is_active(self, broker_id: BrokerId) -> bool:
        """Return True if the broker may lead: registered, unfenced, not shutting down.

        Source: Kafka `ClusterControlManager.isActive`.
        """
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def has_leaderships(self, broker_id: BrokerId) -> bool:
        """Return True if the broker leads any partition."""
        return any(
            partition.leader == broker_id
            for partitions in self.topics.values()
            for partition in partitions
        )

    def replay(self, record: MetadataRecord) -> TopicPartition | None:
        """Apply the record at `end_offset`; return the partition that it created or changed.

        Returns None for a record that is not about one partition. A RemoveTopicRecord also
        removes the topic's partitions, so a caller that needs them must read them before the call.

        Raises: SimulationError for a record that does not fit the image.
        """
        self.end_offset += 1
        match record:
            case RegisterBrokerRecord():
                self._replay_register_broker(record)
            case BrokerRegistrationChangeRecord():
                self._replay_broker_change(record)
            case TopicRecord():
                # PartitionRecords with the partitions follow. A topic that exists is not changed.
                if record.name not in self.topics:
                    self.topics[record.name] = []
                    self.topic_offsets[record.name] = self.end_offset - 1  # this record's offset
                # A client may create a topic of this name again.
                self.deleted_topics.pop(record.name, None)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case ConfigRecord():
                self._replay_config(record)
            case PartitionRecord():
                return self._replay_partition(record)
            case PartitionChangeRecord():
                return self._replay_partition_change(record)
            case ProducerIdsRecord():
                self._replay_producer_ids(record)
        return None

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        """Set the first id of the next block.

        The id must grow. Otherwise two producers would get the same id.

        Source: Kafka `ProducerIdControlManager.replay`, which has the same check.
        """
        if record.next_producer_id <= self.next_producer_id:
            raise SimulationError(
                f"expected a next producer id above {self.next_producer_id}, got "
                f"{record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id

    def _replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        """Add a broker, or replace its earlier registration."""
        broker_id = BrokerId(record.broker_id)
        self.brokers[broker_id] = BrokerRegistration(
            broker_id=broker_id,
            incarnation_id=record.incarnation_id,
            broker_epoch=BrokerEpoch(record.broker_epoch),
            host=record.host,
            port=record.port,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=False,
            end_points=record.end_points,
        )

    def _replay_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Change a broker's registration; a field that is None in the record stays."""
        broker = self.brokers.get(BrokerId(record.broker_id))
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise SimulationError(f"{record} changes a broker that is registered as {broker}")
        self.brokers[broker.broker_id] = BrokerRegistration(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown
                if record.in_controlled_shutdown is None
                else record.in_controlled_shutdown
            ),
            end_points=broker.end_points,
        )

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        """Remove a topic with its partitions and settings."""
        if self.topics.pop(record.name, None) is None:
            raise SimulationError(f"{record} removes a topic that does not exist")
        del self.topic_offsets[record.name]
        self.topic_configs.pop(record.name, None)
        self.deleted_topics[record.name] = None

    def _replay_config(self, record: ConfigRecord) -> None:
        """Set or remove one setting of a topic."""
        settings = _settings(self.topic_config(record.resource_name))
        if record.value is None:  # the record removes the topic's own value
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        # Records have all values as text; `strict=False` turns them into numbers and booleans.
        self.topic_configs[record.resource_name] = msgspec.convert(
            settings, TopicConfig, strict=False
        )

    def _replay_partition(self, record: PartitionRecord) -> TopicPartition:
        """Add a partition to its topic; the partitions of a topic come in order."""
        partitions = self.topics.get(record.topic)
        if partitions is None or record.partition_id != len(partitions):
            raise SimulationError(
                f"expected the next partition of an existing topic, got {record}; the topic has "
                f"{partitions}"
            )
        partitions.append(
            PartitionRegistration(
                replicas=tuple(map(BrokerId, record.replicas)),
                isr=tuple(map(BrokerId, record.isr)),
                leader=BrokerId(record.leader),
                leader_epoch=LeaderEpoch(record.leader_epoch),
                partition_epoch=PartitionEpoch(record.partition_epoch),
            )
        )
        return TopicPartition(record.topic, record.partition_id)

    def _replay_partition_change(self, record: PartitionChangeRecord) -> TopicPartition:
        """Change a partition's state; fields that the record does not set stay."""
        partition = TopicPartition(record.topic, record.partition_id)
        before = self.partition(partition)
        if before is None:
            raise SimulationError(f"{record} changes a partition that does not exist")
        has_new_leader = record.leader != NO_LEADER_CHANGE
        self.topics[partition.topic][partition.partition] = PartitionRegistration(
            replicas=(
                before.replicas
                if record.replicas is None
                else tuple(map(BrokerId, record.replicas))
            ),
            isr=before.isr if record.isr is None else tuple(map(BrokerId, record.isr)),
            leader=BrokerId(record.leader) if has_new_leader else before.leader,
            # `has_new_leader` counts as 0 or 1.
            leader_epoch=LeaderEpoch(before.leader_epoch + has_new_leader),
            partition_epoch=PartitionEpoch(before.partition_epoch + 1),
        )
        return partition


_NO_CONFIG = TopicConfig()
"""The settings of a topic without settings of its own: every field has its default."""


def topic_config_records(topic: str, config: TopicConfig) -> list[ConfigRecord]:
    """Return a record for each setting in `config` that is not the default."""
    return [
        ConfigRecord(resource_name=topic, name=name, value=config_text(value))
        for name, value in _settings(config).items()
    ]


def _settings(config: TopicConfig) -> dict[str, object]:
    """Return the settings of `config` that are not the default, by Kafka's names."""
    settings = msgspec.to_builtins(config)
    defaults = msgspec.to_builtins(_NO_CONFIG)
    return {name: value for name, value in settings.items() if value != defaults[name]}


def config_text(value: object) -> str:
    """Return a setting's value in Kafka's spelling: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
