"""A broker's copy of the metadata, and the answers that it gives from the copy.

The controller writes every change of the cluster to the metadata log. Each broker reads this log,
and applies the records to its MetadataImage: the brokers, the topics, and the leader and replicas
of each partition. A broker may be behind the controller. It answers Metadata and FindCoordinator
from its copy even then, so clients may get stale answers. A real cluster behaves in the same way,
and this is important for the failovers that this project studies.

Source: Kafka `KRaftMetadataCache`, `KafkaApis.getCoordinator`.
"""

from collections.abc import Sequence

from cluster.controller.metadata_image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from protocol.errors import ErrorCode
from protocol.ids import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    BrokerEpoch,
    BrokerId,
    TopicPartition,
    offsets_partition,
    transaction_partition,
)
from protocol.messages.discovery import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.partitioner import partition_for
from protocol.records.metadata import NO_LEADER, MetadataRecord, RemoveTopicRecord
from protocol.topic_names import topic_name_problem

SHARE_SINCE_VERSION = 6
"""First version of FindCoordinator that can ask for the coordinator of a share group."""
BATCHES_SINCE_VERSION = 4
"""First version of FindCoordinator that can ask for several coordinators.

From this version on, the answers have error codes but no messages."""
ERROR_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or "
        "the message was sent to an incompatible broker. See the broker logs for more details."
    ),
}
"""Kafka's messages for the codes in answers to FindCoordinator. Source: Kafka `Errors.message`."""


class MetadataCache:
    """A broker's copy of the metadata, and the answers to clients from it.

    The numbers of partitions of `__consumer_offsets` and `__transaction_state` are set once at the
    start. If one of these topics gets more partitions later, Kafka's coordinators do not notice it
    either (docs/kafka, BEHAVIOUR 2.1). In Kafka both numbers are 50 by default.
    """

    def __init__(
        self, *, num_offsets_partitions: int, num_transaction_partitions: int = 50
    ) -> None:
        self.image = MetadataImage()
        """The image; only `apply` changes it."""
        self.eligible_brokers: dict[BrokerId, BrokerEpoch] = {}
        """The brokers that may be in an ISR, with their epochs. Partitions hold a reference to this
        dict, so `apply` changes it in place."""
        self._num_offsets_partitions = num_offsets_partitions
        self._num_transaction_partitions = num_transaction_partitions

    @property
    def last_applied_offset(self) -> int:
        """Offset of the newest applied metadata record; -1 before the first record."""
        return self.image.end_offset - 1

    def apply(self, records: Sequence[MetadataRecord]) -> list[TopicPartition]:
        """Apply the next records of the metadata log; return the partitions that they concern.

        Deleted partitions are included, although the image no longer has them.
        """
        # A dict keeps the order of insertion, so the order of the result is the same in every run.
        changed: dict[TopicPartition, None] = {}
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                # The partitions are noted before the replay, which removes them from the image.
                for index in range(len(self.image.topics.get(record.name, ()))):
                    changed[TopicPartition(record.name, index)] = None
            partition = self.image.replay(record)
            if partition is not None:
                changed[partition] = None
        self.eligible_brokers.clear()  # in place: partitions hold a reference to this dict
        for broker in self.image.brokers.values():
            # An active broker is unfenced and not in a controlled shutdown.
            if self.image.is_active(broker.broker_id):
                self.eligible_brokers[broker.broker_id] = broker.broker_epoch
        return list(changed)

    def contains(self, topic: str, partition: int) -> bool:
        """Return True if the partition exists."""
        partitions = self.image.topics.get(topic)
        return partitions is not None and 0 <= partition < len(partitions)

    def live_leader(self, partition: TopicPartition) -> BrokerId | None:
        """Return a partition's leader, None if there is no leader or the leader is fenced."""
        registration = self.image.partition(partition)
        if registration is None or not self._is_alive(registration.leader):
            return None
        return registration.leader

    def transaction_coordinator(self, transactional_id: str) -> BrokerId | None:
        """Return the coordinator of a transactional id, None while its partition has no leader."""
        return self.live_leader(self._partition_of(CoordinatorType.TRANSACTION, transactional_id))

    def missing_topics(self, request: MetadataRequest) -> tuple[str, ...]:
        """Return the topics that `request` names and that do not exist.

        A request for all topics (`topics` is None) does not name any topic.
        """
        return tuple(name for name in request.topics or () if name not in self.image.topics)

    def metadata(self, request: MetadataRequest, listener_name: str = "") -> MetadataResponse:
        """Answer Metadata: live brokers and the requested topics.

        A real Kafka client connects to a named listener of a broker. The answer then has the
        address of each broker at the listener of the same name. As in Kafka, brokers without such a
        listener are left out. `listener_name` is "" if a node of this project sent the request.
        """
        # None requests all topics.
        topics = self.image.topics if request.topics is None else request.topics
        # The live brokers that have the listener; `address` is its host and port.
        brokers = tuple(
            MetadataResponseBroker(
                node_id=broker.broker_id, host=address[0], port=address[1], rack=broker.rack
            )
            for broker in self.image.brokers.values()
            if not broker.fenced and (address := _address(broker, listener_name)) is not None
        )
        return MetadataResponse(
            brokers=brokers,
            # Clients expect a broker here, but with KRaft the controller is no broker. Kafka names
            # a random live broker. Here the live broker with the lowest id is named.
            controller_id=min((broker.node_id for broker in brokers), default=-1),
            topics=tuple(self._topic(name) for name in topics),
        )

    def find_coordinator(
        self, request: FindCoordinatorRequest, api_version: int, listener_name: str = ""
    ) -> FindCoordinatorResponse:
        """Answer FindCoordinator, key by key."""
        return FindCoordinatorResponse(
            coordinators=tuple(
                self._coordinator(request.key_type, key, api_version, listener_name)
                for key in request.coordinator_keys
            )
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        """Return one topic for the answer to Metadata, or the error if it does not exist."""
        partitions = self.image.topics.get(name)
        if partitions is None:
            is_legal = topic_name_problem(name) is None
            return MetadataResponseTopic(
                name=name,
                error_code=(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if is_legal
                    else ErrorCode.INVALID_TOPIC_EXCEPTION
                ),
            )
        return MetadataResponseTopic(
            name=name,
            is_internal=name in (CONSUMER_OFFSETS, TRANSACTION_STATE),
            partitions=tuple(
                self._partition(index, partition) for index, partition in enumerate(partitions)
            ),
        )

    def _partition(self, index: int, partition: PartitionRegistration) -> MetadataResponsePartition:
        """Return one partition for the answer to Metadata; a fenced leader counts as no leader."""
        has_leader = self._is_alive(partition.leader)
        return MetadataResponsePartition(
            error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=partition.leader if has_leader else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=tuple(
                replica for replica in partition.replicas if not self._is_alive(replica)
            ),
        )

    def _coordinator(
        self, key_type: int, key: str, api_version: int, listener_name: str
    ) -> Coordinator:
        """Return the coordinator of one key. The checks are in Kafka's order (BEHAVIOUR 2.1)."""
        # `in` needs a tuple: before Python 3.12, `number in CoordinatorType` raises TypeError.
        if key_type not in tuple(CoordinatorType):
            # In Kafka an exception causes this answer. So there is a message in every version.
            error = ErrorCode.INVALID_REQUEST
            return Coordinator(key=key, error_code=error, error_message=ERROR_MESSAGES[error])
        if key_type == CoordinatorType.SHARE and api_version < SHARE_SINCE_VERSION:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, api_version)

        kind = CoordinatorType(key_type)
        # The coordinator is the leader of a partition of an internal topic. This project has no
        # internal topic for share groups, and a cluster without transactions has none for
        # transactions. Then there is no leader.
        leader_id = (
            None
            if kind is CoordinatorType.SHARE
            else self.live_leader(self._partition_of(kind, key))
        )
        leader = None if leader_id is None else self.image.brokers[leader_id]
        address = None if leader is None else _address(leader, listener_name)
        if leader is None or address is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, api_version)
        return Coordinator(
            key=key,
            node_id=leader.broker_id,
            host=address[0],
            port=address[1],
            error_message=_error_message(ErrorCode.NONE, api_version),
        )

    def _partition_of(self, kind: CoordinatorType, key: str) -> TopicPartition:
        """Return the partition of an internal topic whose leader coordinates `key`."""
        if kind is CoordinatorType.TRANSACTION:
            return transaction_partition(partition_for(key, self._num_transaction_partitions))
        return offsets_partition(partition_for(key, self._num_offsets_partitions))

    def _is_alive(self, broker_id: BrokerId) -> bool:
        """Return True if a broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced


def _address(broker: BrokerRegistration, listener_name: str) -> tuple[str, int] | None:
    """Return host and port of a broker's listener, None if the broker has no such listener."""
    if not listener_name:
        return broker.host, broker.port
    for end_point in broker.end_points:
        if end_point.name == listener_name:
            return end_point.host, end_point.port
    return None


def _no_coordinator(key: str, error: ErrorCode, api_version: int) -> Coordinator:
    """Return the answer for a key without a coordinator."""
    return Coordinator(key=key, error_code=error, error_message=_error_message(error, api_version))


def _error_message(error: ErrorCode, api_version: int) -> str:
    """Return the message for an error code in an answer to FindCoordinator of this version."""
    return "" if api_version >= BATCHES_SINCE_VERSION else ERROR_MESSAGES[error]
