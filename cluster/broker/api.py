"""BrokerApi: passes each request of a client or of another broker to the part that answers it.

Some requests are checked here before a coordinator gets them, as in Kafka's API layer. For example,
a commit for a partition that does not exist is refused here. The part that gets a request answers
the request by Host.reply, immediately or later.

Source: Kafka `KafkaApis`; docs/kafka, BEHAVIOUR 2.0.
"""

from typing import NoReturn

import msgspec

from cluster.broker.control.describe_configs import describe_configs
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.control.topic_forwarding import TopicForwarding
from cluster.broker.coordination.group_coordination import GroupCoordination
from cluster.broker.coordination.static_membership import static_member_refusal
from cluster.broker.coordination.unknown_partitions import with_unknown, without_unknown
from cluster.broker.replication.leader_epochs import offset_for_leader_epoch
from cluster.broker.replication.list_offsets import list_offsets
from cluster.broker.replication.produce import ProduceApi
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.broker.transactions.transaction_coordination import TransactionCoordination
from cluster.broker.transactions.txn_marker_writer import TxnMarkerWriter
from cluster.host.host import Host
from cluster.host.incoming_request import IncomingRequest
from cluster.host.unanswered import check_unanswered
from protocol.api import AnyResponse, GroupRequest
from protocol.config import BrokerConfig
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerId, RequestId
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.controller import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.discovery import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from protocol.messages.log import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
)
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
)
from protocol.messages.zookeeper import ZooKeeperRequest
from protocol.messages.zookeeper_quorum import QuorumRequest
from protocol.metadata_version import has_static_members, metadata_version
from protocol.wire.listener_versions import api_versions

SYNC_GROUP_NAMES_PROTOCOL_SINCE_VERSION = 5
"""First version of SyncGroup that must have the type and the name of the group's protocol."""


class BrokerApi:
    """Answers every API that a broker has."""

    def __init__(
        self,
        host: Host,
        cache: MetadataCache,
        replicas: ReplicaManager,
        coordination: GroupCoordination,
        transactions: TransactionCoordination,
        markers: TxnMarkerWriter,
        forwarding: TopicForwarding,
        broker_id: BrokerId,
        config: BrokerConfig,
    ) -> None:
        version = metadata_version(config.inter_broker_protocol_version)
        # Brokers of old versions know no static members, and refuse requests with a
        # group.instance.id.
        self._has_static_members = has_static_members(version)
        self._host = host
        self._cache = cache
        self._replicas = replicas
        self._coordination = coordination
        self._transactions = transactions
        self._markers = markers
        self._forwarding = forwarding
        self._broker_id = broker_id
        self._config = config
        self._produce = ProduceApi(host, replicas)

    def handle(self, incoming: IncomingRequest) -> None:
        """Answer a request, now or later."""
        request_id, envelope = incoming.request_id, incoming.envelope
        if not self._has_static_members:
            refusal = static_member_refusal(envelope)
            if refusal is not None:
                self._host.reply(request_id, refusal)
                return
        match envelope.body:
            case FetchRequest() as request:
                self._replicas.fetch(request_id, request)
            case ProduceRequest() as request:
                self._produce.handle(request_id, request, envelope.client_id)
            case OffsetCommitRequest() as request:
                self._offset_commit(request_id, envelope, request)
            case SyncGroupRequest() as request:
                self._sync_group(request_id, envelope, request)
            case (
                HeartbeatRequest()
                | JoinGroupRequest()
                | LeaveGroupRequest()
                | OffsetFetchRequest()
                | DescribeGroupsRequest()
                | ListGroupsRequest()
                | DeleteGroupsRequest()
            ):
                self._coordination.handle(request_id, envelope)
            case TxnOffsetCommitRequest() as request:
                self._txn_offset_commit(request_id, envelope, request)
            case (
                InitProducerIdRequest()
                | AddPartitionsToTxnRequest()
                | AddOffsetsToTxnRequest()
                | EndTxnRequest()
            ):
                self._transactions.handle(request_id, envelope)
            case WriteTxnMarkersRequest() as request:
                self._markers.handle(request_id, request)
            case OffsetDeleteRequest() as request:
                self._offset_delete(request_id, envelope, request)
            case ConsumerGroupHeartbeatRequest():
                # Kafka 3.9 answers the same by default, because this API is part of the new group
                # protocol, which must be switched on (group.coordinator.rebalance.protocols).
                self._host.reply(
                    request_id,
                    ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION),
                )
            case FindCoordinatorRequest() as request:
                self._host.reply(
                    request_id,
                    self._cache.find_coordinator(
                        request, envelope.api_version, envelope.listener_name
                    ),
                )
            case MetadataRequest() as request:
                self._metadata(request_id, envelope, request)
            case ListOffsetsRequest() as request:
                self._host.reply(request_id, list_offsets(self._replicas, request))
            case OffsetForLeaderEpochRequest() as request:
                self._host.reply(request_id, offset_for_leader_epoch(self._replicas, request))
            case ApiVersionsRequest():
                self._host.reply(request_id, api_versions(envelope.api_version))
            case DescribeConfigsRequest() as request:
                self._host.reply(
                    request_id,
                    describe_configs(self._cache.image, self._broker_id, self._config, request),
                )
            case CreateTopicsRequest() | DeleteTopicsRequest() as request:
                self._forwarding.forward(request_id, request)
            case (
                BrokerRegistrationRequest()
                | BrokerHeartbeatRequest()
                | AlterPartitionRequest()
                | AllocateProducerIdsRequest()
                | ElectLeadersRequest()
                | AlterPartitionReassignmentsRequest()
            ) as request:
                self._host.reply(request_id, _not_controller(request))
            case other:  # only requests for ZooKeeper servers are left
                _refuse_other_world(other)

    def check_invariants(self) -> None:
        """Check that each unanswered request is held by one of the parts that answer later.

        Requests about groups are left out here, because GroupCoordination checks them.

        Raises: InvariantViolation.
        """
        # The second argument has the requests of all parts. Requests of the types in `elsewhere`
        # are skipped.
        check_unanswered(
            self._host,
            self._transactions.coordinator.waiting()
            | self._replicas.waiting_fetches()
            | self._produce.waiting()
            | self._markers.waiting()
            | self._forwarding.waiting(),
            elsewhere=GroupRequest,
        )

    def _sync_group(
        self, request_id: RequestId, envelope: RequestEnvelope, request: SyncGroupRequest
    ) -> None:
        """Refuse a SyncGroup that must name its protocol and does not; pass on all others."""
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if envelope.api_version >= SYNC_GROUP_NAMES_PROTOCOL_SINCE_VERSION and not names_protocol:
            self._host.reply(
                request_id, SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            )
        else:
            self._coordination.handle(request_id, envelope)

    def _metadata(
        self, request_id: RequestId, envelope: RequestEnvelope, request: MetadataRequest
    ) -> None:
        """Answer Metadata; begin to create missing topics if client and broker permit it.

        Until the topic exists, the answer is UNKNOWN_TOPIC_OR_PARTITION, and the client asks again.

        Source: Kafka KafkaApis.getTopicMetadata.
        """
        if request.allow_auto_topic_creation and self._config.auto_create_topics_enable:
            self._forwarding.create_missing(self._cache.missing_topics(request))
        self._host.reply(request_id, self._cache.metadata(request, envelope.listener_name))

    def _offset_commit(
        self, request_id: RequestId, envelope: RequestEnvelope, request: OffsetCommitRequest
    ) -> None:
        """Refuse partitions that do not exist; pass the other partitions to the coordinator.

        As in Kafka, if none of the partitions exists, the coordinator does not get the request at
        all. Then the group and the member in the request are not checked.
        """
        # `unknown` has the partitions that do not exist, `known` is the request without them.
        known, unknown = without_unknown(request, self._cache.contains)
        if not unknown:
            self._coordination.handle(request_id, envelope)
        elif known.topics:
            self._coordination.handle(request_id, _with_body(envelope, known), unknown)
        else:
            self._host.reply(request_id, with_unknown(OffsetCommitResponse(), unknown))

    def _txn_offset_commit(
        self, request_id: RequestId, envelope: RequestEnvelope, request: TxnOffsetCommitRequest
    ) -> None:
        """Do the same as `_offset_commit` for a commit in a transaction."""
        known, unknown = without_unknown(request, self._cache.contains)
        if not unknown:
            self._coordination.handle(request_id, envelope)
        elif known.topics:
            self._coordination.handle(request_id, _with_body(envelope, known), unknown)
        else:
            self._host.reply(request_id, with_unknown(TxnOffsetCommitResponse(), unknown))

    def _offset_delete(
        self, request_id: RequestId, envelope: RequestEnvelope, request: OffsetDeleteRequest
    ) -> None:
        """Do the same as `_offset_commit` for the deletion of offsets.

        There is one difference: a request without any partition does not reach the coordinator.
        """
        known, unknown = without_unknown(request, self._cache.contains)
        # `known.topics` alone does not show whether there is an offset to delete, because a request
        # may name a topic without partitions.
        if any(topic.partitions for topic in known.topics):
            self._coordination.handle(request_id, _with_body(envelope, known), unknown)
        else:
            self._host.reply(request_id, with_unknown(OffsetDeleteResponse(), unknown))


def _not_controller(
    request: BrokerRegistrationRequest
    | BrokerHeartbeatRequest
    | AlterPartitionRequest
    | AllocateProducerIdsRequest
    | ElectLeadersRequest
    | AlterPartitionReassignmentsRequest,
) -> AnyResponse:
    """Return a broker's answer to a request that only a controller can carry out.

    DEVIATION: Kafka's brokers forward ElectLeaders and AlterPartitionReassignments to the
    controller, in an Envelope. Here an administrator asks the controllers themselves (KIP-919).
    """
    error = ErrorCode.NOT_CONTROLLER
    match request:
        case BrokerRegistrationRequest():
            return BrokerRegistrationResponse(error_code=error)
        case BrokerHeartbeatRequest():
            return BrokerHeartbeatResponse(error_code=error)
        case AlterPartitionRequest():
            return AlterPartitionResponse(error_code=error)
        case AllocateProducerIdsRequest():
            return AllocateProducerIdsResponse(error_code=error)
        case ElectLeadersRequest():
            return ElectLeadersResponse(error_code=error)
        case AlterPartitionReassignmentsRequest():
            return AlterPartitionReassignmentsResponse(error_code=error)


def _with_body(
    envelope: RequestEnvelope,
    body: OffsetCommitRequest | TxnOffsetCommitRequest | OffsetDeleteRequest,
) -> RequestEnvelope:
    return msgspec.structs.replace(envelope, body=body)


def _refuse_other_world(request: ZooKeeperRequest | QuorumRequest) -> NoReturn:
    """Raise SimulationError, because only ZooKeeper servers get requests of these types."""
    raise SimulationError(f"a broker is no ZooKeeper server, got {type(request).__name__}")
