"""The envelope of every message: api, version, correlation id, client id and host.

Owns the closed unions of requests and responses and their MessagePack codec. In virtual time
envelopes travel by reference; on Ray, and in the codec check, as the bytes made here.
"""

from enum import IntEnum

import msgspec

from protocol.errors import ErrorCode
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
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
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from protocol.messages.log import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class ApiKey(IntEnum):
    """Kafka's API keys; `label` is the name that Kafka prints."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    ALTER_PARTITION_REASSIGNMENTS = 45
    OFFSET_DELETE = 47
    ALTER_PARTITION = 56
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68

    @property
    def label(self) -> str:
        """Kafka's printed name, e.g. `JoinGroup`."""
        return _LABELS[self]


GroupRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | TxnOffsetCommitRequest
    | OffsetDeleteRequest
    | DescribeGroupsRequest
    | ListGroupsRequest
    | DeleteGroupsRequest
)
"""Requests that the group coordinator answers."""

GroupResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | TxnOffsetCommitResponse
    | OffsetDeleteResponse
    | DescribeGroupsResponse
    | ListGroupsResponse
    | DeleteGroupsResponse
)

TransactionRequest = (
    InitProducerIdRequest | AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | EndTxnRequest
)
"""Requests that the transaction coordinator answers."""

TransactionResponse = (
    InitProducerIdResponse | AddPartitionsToTxnResponse | AddOffsetsToTxnResponse | EndTxnResponse
)

AdminRequest = ElectLeadersRequest | AlterPartitionReassignmentsRequest | DeleteTopicsRequest
"""Requests of an administrator."""

ControllerRequest = (
    BrokerRegistrationRequest
    | BrokerHeartbeatRequest
    | AlterPartitionRequest
    | AllocateProducerIdsRequest
    | AdminRequest
)
"""Requests that only the controller answers; it answers Fetch of `__cluster_metadata` too."""

AnyRequest = (
    GroupRequest
    | TransactionRequest
    | WriteTxnMarkersRequest
    | ConsumerGroupHeartbeatRequest
    | FindCoordinatorRequest
    | MetadataRequest
    | ProduceRequest
    | FetchRequest
    | ListOffsetsRequest
    | ControllerRequest
)

AnyResponse = (
    GroupResponse
    | TransactionResponse
    | WriteTxnMarkersResponse
    | ConsumerGroupHeartbeatResponse
    | FindCoordinatorResponse
    | MetadataResponse
    | ProduceResponse
    | FetchResponse
    | ListOffsetsResponse
    | BrokerRegistrationResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | AllocateProducerIdsResponse
    | ElectLeadersResponse
    | AlterPartitionReassignmentsResponse
    | DeleteTopicsResponse
)

API_KEYS: dict[type, ApiKey] = {
    ProduceRequest: ApiKey.PRODUCE,
    FetchRequest: ApiKey.FETCH,
    ListOffsetsRequest: ApiKey.LIST_OFFSETS,
    MetadataRequest: ApiKey.METADATA,
    OffsetCommitRequest: ApiKey.OFFSET_COMMIT,
    OffsetFetchRequest: ApiKey.OFFSET_FETCH,
    FindCoordinatorRequest: ApiKey.FIND_COORDINATOR,
    JoinGroupRequest: ApiKey.JOIN_GROUP,
    HeartbeatRequest: ApiKey.HEARTBEAT,
    LeaveGroupRequest: ApiKey.LEAVE_GROUP,
    SyncGroupRequest: ApiKey.SYNC_GROUP,
    DescribeGroupsRequest: ApiKey.DESCRIBE_GROUPS,
    ListGroupsRequest: ApiKey.LIST_GROUPS,
    DeleteTopicsRequest: ApiKey.DELETE_TOPICS,
    DeleteGroupsRequest: ApiKey.DELETE_GROUPS,
    OffsetDeleteRequest: ApiKey.OFFSET_DELETE,
    InitProducerIdRequest: ApiKey.INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest: ApiKey.ADD_PARTITIONS_TO_TXN,
    AddOffsetsToTxnRequest: ApiKey.ADD_OFFSETS_TO_TXN,
    EndTxnRequest: ApiKey.END_TXN,
    WriteTxnMarkersRequest: ApiKey.WRITE_TXN_MARKERS,
    TxnOffsetCommitRequest: ApiKey.TXN_OFFSET_COMMIT,
    ElectLeadersRequest: ApiKey.ELECT_LEADERS,
    AlterPartitionReassignmentsRequest: ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionRequest: ApiKey.ALTER_PARTITION,
    BrokerRegistrationRequest: ApiKey.BROKER_REGISTRATION,
    BrokerHeartbeatRequest: ApiKey.BROKER_HEARTBEAT,
    AllocateProducerIdsRequest: ApiKey.ALLOCATE_PRODUCER_IDS,
    ConsumerGroupHeartbeatRequest: ApiKey.CONSUMER_GROUP_HEARTBEAT,
}

LATEST_VERSIONS: dict[ApiKey, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 17,
    ApiKey.LIST_OFFSETS: 10,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.ALTER_PARTITION: 3,
    ApiKey.BROKER_REGISTRATION: 4,
    ApiKey.BROKER_HEARTBEAT: 1,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
}

_NONE = ErrorCode.NONE
_NO_ERROR = ErrorCode.NONE.name
_LABELS = {key: "".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}


class RequestEnvelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A request on a connection. `client_host` is the sender's node name."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str
    client_host: str
    body: AnyRequest


class ResponseEnvelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The answer to the request with the same correlation id on the same connection."""

    correlation_id: int
    body: AnyResponse


def error_of(response: AnyResponse) -> str:
    """Return the name of a response's first error, "NONE" where there is none: for the trace."""
    match response:
        case FetchResponse():  # first and without lists, because most responses are
            if response.error_code is not _NONE:
                return response.error_code.name
            for topic in response.responses:
                for partition in topic.partitions:
                    if partition.error_code is not _NONE:
                        return partition.error_code.name
            return _NO_ERROR
        case (
            JoinGroupResponse()
            | SyncGroupResponse()
            | HeartbeatResponse()
            | ListGroupsResponse()
            | ConsumerGroupHeartbeatResponse()
            | BrokerRegistrationResponse()
            | BrokerHeartbeatResponse()
            | AllocateProducerIdsResponse()
            | InitProducerIdResponse()
            | AddOffsetsToTxnResponse()
            | EndTxnResponse()
        ):
            return response.error_code.name
        case LeaveGroupResponse():
            codes = [response.error_code, *(m.error_code for m in response.members)]
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            codes = [p.error_code for t in response.topics for p in t.partitions]
        case OffsetFetchResponse():
            codes = [g.error_code for g in response.groups]
            codes += [p.error_code for g in response.groups for t in g.topics for p in t.partitions]
        case OffsetDeleteResponse():
            codes = [response.error_code]
            codes += [p.error_code for t in response.topics for p in t.partitions]
        case DescribeGroupsResponse():
            codes = [g.error_code for g in response.groups]
        case DeleteGroupsResponse():
            codes = [g.error_code for g in response.results]
        case AddPartitionsToTxnResponse():
            codes = [response.error_code]
            codes += [
                p.partition_error_code
                for result in response.results_by_transaction
                for t in result.topic_results
                for p in t.results_by_partition
            ]
        case WriteTxnMarkersResponse():
            codes = [p.error_code for m in response.markers for t in m.topics for p in t.partitions]
        case FindCoordinatorResponse():
            codes = [c.error_code for c in response.coordinators]
        case MetadataResponse():
            codes = [t.error_code for t in response.topics]
        case ProduceResponse():
            codes = [p.error_code for t in response.responses for p in t.partition_responses]
        case ListOffsetsResponse():
            codes = [p.error_code for t in response.topics for p in t.partitions]
        case AlterPartitionResponse():
            codes = [response.error_code]
            codes += [p.error_code for t in response.topics for p in t.partitions]
        case ElectLeadersResponse():
            codes = [response.error_code]
            codes += [
                p.error_code
                for result in response.replica_election_results
                for p in result.partition_result
            ]
        case AlterPartitionReassignmentsResponse():
            codes = [response.error_code]
            codes += [p.error_code for t in response.responses for p in t.partitions]
        case DeleteTopicsResponse():
            codes = [t.error_code for t in response.responses]
    return next((code.name for code in codes if code is not _NONE), _NO_ERROR)
