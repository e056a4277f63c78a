"""Requests of clients and of other brokers go to who answers them.

Owns the checks of Kafka's API layer that come before the coordinator's own. Source: `KafkaApis`,
BEHAVIOUR 2.0.
"""

from cluster.broker.group_coordination import GroupCoordination, RefusedOffsets
from cluster.broker.list_offsets import list_offsets
from cluster.broker.metadata_cache import MetadataCache
from cluster.broker.produce import ProduceApi
from cluster.broker.replica_manager import ReplicaManager
from cluster.host import Host, IncomingRequest
from protocol.admin_messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from protocol.controller_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.discovery_messages import FindCoordinatorRequest, MetadataRequest
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode
from protocol.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.ids import RequestId
from protocol.log_messages import FetchRequest, ListOffsetsRequest, ProduceRequest
from protocol.offset_messages import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
)

SYNC_GROUP_NAMES_PROTOCOL_SINCE_VERSION = 5


class BrokerApi:
    """Answers every API that a broker has."""

    def __init__(
        self,
        host: Host,
        cache: MetadataCache,
        replicas: ReplicaManager,
        coordination: GroupCoordination,
    ) -> None:
        self._host = host
        self._cache = cache
        self._replicas = replicas
        self._coordination = coordination
        self._produce = ProduceApi(host, replicas)

    def handle(self, incoming: IncomingRequest) -> None:
        """Answer a request, now or later."""
        request_id, envelope = incoming.request_id, incoming.envelope
        match envelope.body:
            case FetchRequest() as request:
                self._replicas.fetch(request_id, request)
            case ProduceRequest() as request:
                self._produce.handle(request_id, request)
            case OffsetCommitRequest() as request:
                self._offset_commit(request_id, envelope, request)
            case SyncGroupRequest() as request:
                self._sync_group(request_id, envelope, request)
            case HeartbeatRequest() | JoinGroupRequest() | LeaveGroupRequest():
                self._coordination.handle(request_id, envelope)
            case OffsetFetchRequest():
                self._coordination.handle(request_id, envelope)
            case FindCoordinatorRequest() as request:
                self._host.reply(
                    request_id, self._cache.find_coordinator(request, envelope.api_version)
                )
            case MetadataRequest() as request:
                self._host.reply(request_id, self._cache.metadata(request))
            case ListOffsetsRequest() as request:
                self._host.reply(request_id, list_offsets(self._replicas, request))
            case BrokerRegistrationRequest():
                self._host.reply(
                    request_id, BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
                )
            case BrokerHeartbeatRequest():
                self._host.reply(
                    request_id, BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)
                )
            case AlterPartitionRequest():
                self._host.reply(
                    request_id, AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
                )
            # DEVIATION: Kafka's brokers forward these to the controller (Envelope); here an
            # administrator asks the controllers themselves (KIP-919).
            case ElectLeadersRequest():
                self._host.reply(
                    request_id, ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
                )
            case AlterPartitionReassignmentsRequest():
                self._host.reply(
                    request_id,
                    AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER),
                )

    def _sync_group(
        self, request_id: RequestId, envelope: RequestEnvelope, request: SyncGroupRequest
    ) -> None:
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if envelope.api_version >= SYNC_GROUP_NAMES_PROTOCOL_SINCE_VERSION and not names_protocol:
            self._host.reply(
                request_id, SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            )
        else:
            self._coordination.handle(request_id, envelope)

    def _offset_commit(
        self, request_id: RequestId, envelope: RequestEnvelope, request: OffsetCommitRequest
    ) -> None:
        """Refuse what does not exist, partition by partition; the rest is the coordinator's."""
        contains = self._cache.contains
        if all(
            contains(topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ):
            self._coordination.handle(request_id, envelope)
            return
        refused: RefusedOffsets = {}
        accepted: list[OffsetCommitRequestTopic] = []
        for topic in request.topics:
            known = []
            unknown = []
            for partition in topic.partitions:
                if contains(topic.name, partition.partition_index):
                    known.append(partition)
                else:
                    unknown.append(
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                    )
            if known:
                accepted.append(OffsetCommitRequestTopic(name=topic.name, partitions=tuple(known)))
            if unknown:
                refused[topic.name] = (*refused.get(topic.name, ()), *unknown)
        if not accepted:
            self._host.reply(request_id, _refusal(refused))
            return
        self._coordination.handle(request_id, _with_topics(envelope, request, accepted), refused)


def _refusal(refused: RefusedOffsets) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(name=name, partitions=partitions)
            for name, partitions in refused.items()
        )
    )


def _with_topics(
    envelope: RequestEnvelope,
    request: OffsetCommitRequest,
    topics: list[OffsetCommitRequestTopic],
) -> RequestEnvelope:
    """Return `envelope` with a commit of `topics` alone."""
    body = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=tuple(topics),
    )
    return RequestEnvelope(
        api_key=envelope.api_key,
        api_version=envelope.api_version,
        correlation_id=envelope.correlation_id,
        client_id=envelope.client_id,
        client_host=envelope.client_host,
        body=body,
    )
