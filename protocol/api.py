"""Kafka's APIs, one row each: API key, versions, messages, and the error fields of the answer.

An API is a kind of request with its answer, such as JoinGroup. The row of an API says all that
general code must know about the API: how to encode its messages, how to show them in the trace (the
recording of a run), and the name by which a fault chooses them. So general code need not be changed
for a new API.

To add an API, write its two messages in `protocol/messages`, a row of `Api`, and a line in each of
the unions below. Because of the unions, mypy finds every `match` that lacks a message.
"""

from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple, Self

import msgspec

from protocol.errors import ErrorCode
from protocol.messages import (
    admin,
    consumer_group,
    controller,
    discovery,
    group,
    group_admin,
    log,
    offset,
    transaction,
    zookeeper,
    zookeeper_quorum,
)
from protocol.wire import message_schemas, transaction_schemas
from protocol.wire.fields import ApiSchema

# Paths of error fields that several answers have. The path `a.b` means the field `b` of each item
# of the list `a`.
_PER_PARTITION = ("topics.partitions.error_code",)
_WHOLE_AND_PER_PARTITION = ("error_code", *_PER_PARTITION)


class RequestSubject(NamedTuple):
    """Paths of a request's group id, member id and generation, which the trace shows.

    For example, "members.member_id" is the field `member_id` of the first item of the list
    `members`. None means that the request does not have this field.
    """

    group: str
    member: str | None = None
    generation: str | None = None


_MEMBER = RequestSubject("group_id", "member_id", "generation_id")


class _Row(NamedTuple):
    """The properties of an API.

    key: Kafka's number of the API.
    versions: the oldest and the newest version in use. Both are equal if there is no `schema`.
    errors: paths of the error codes in the answer, such as "topics.partitions.error_code". The
        trace shows the first error that is found, in the order of the paths.
    subject: paths of the request's group and member. None if the trace does not show them.
    schema: Kafka's fields by version. None if only the newest version is in use.
    """

    key: int
    versions: tuple[int, int]
    request: type[msgspec.Struct]
    response: type[msgspec.Struct]
    errors: tuple[str, ...] = ("error_code",)
    subject: RequestSubject | None = None
    schema: ApiSchema | None = None


class Api(IntEnum):
    """Kafka's APIs. A member's value is Kafka's API key, and its `label` is the name in Kafka.

    Each member is written as a `_Row`. Enum passes the fields of the row to `__new__`, which makes
    them attributes of the member.
    """

    label: str
    versions: range
    latest_version: int
    request: type[msgspec.Struct]
    response: type[msgspec.Struct]
    errors: tuple[str, ...]
    subject: RequestSubject | None
    schema: ApiSchema | None

    def __new__(  # noqa: D102 (called with each row, by Enum)
        cls,
        key: int,
        versions: tuple[int, int],
        request: type[msgspec.Struct],
        response: type[msgspec.Struct],
        errors: tuple[str, ...],
        subject: RequestSubject | None,
        schema: ApiSchema | None,
    ) -> Self:
        api = int.__new__(cls, key)
        api._value_ = key
        api.label = request.__name__.removesuffix("Request")
        api.versions = range(versions[0], versions[1] + 1)
        api.latest_version = versions[1]
        api.request = request
        api.response = response
        api.errors = errors
        api.subject = subject
        api.schema = schema
        return api

    PRODUCE = _Row(
        0,
        (11, 11),
        log.ProduceRequest,
        log.ProduceResponse,
        errors=("responses.partition_responses.error_code",),
    )
    FETCH = _Row(
        1,
        (17, 17),
        log.FetchRequest,
        log.FetchResponse,
        errors=("error_code", "responses.partitions.error_code"),
    )
    LIST_OFFSETS = _Row(
        2, (10, 10), log.ListOffsetsRequest, log.ListOffsetsResponse, errors=_PER_PARTITION
    )
    METADATA = _Row(
        3,
        (12, 12),
        discovery.MetadataRequest,
        discovery.MetadataResponse,
        # Errors of partitions are left out: a partition without a leader has an error, but this is
        # no failure of the request.
        errors=("topics.error_code",),
    )
    OFFSET_COMMIT = _Row(
        8,
        (2, 9),
        offset.OffsetCommitRequest,
        offset.OffsetCommitResponse,
        errors=_PER_PARTITION,
        subject=RequestSubject("group_id", "member_id", "generation_id_or_member_epoch"),
        schema=message_schemas.OFFSET_COMMIT,
    )
    OFFSET_FETCH = _Row(
        9,
        (1, 9),
        offset.OffsetFetchRequest,
        offset.OffsetFetchResponse,
        errors=("groups.error_code", "groups.topics.partitions.error_code"),
        subject=RequestSubject("groups.group_id", "groups.member_id", "groups.member_epoch"),
        schema=message_schemas.OFFSET_FETCH,
    )
    FIND_COORDINATOR = _Row(
        10,
        (0, 6),
        discovery.FindCoordinatorRequest,
        discovery.FindCoordinatorResponse,
        errors=("coordinators.error_code",),
        subject=RequestSubject("coordinator_keys"),
        schema=message_schemas.FIND_COORDINATOR,
    )
    JOIN_GROUP = _Row(
        11,
        (0, 9),
        group.JoinGroupRequest,
        group.JoinGroupResponse,
        subject=RequestSubject("group_id", "member_id"),
        schema=message_schemas.JOIN_GROUP,
    )
    HEARTBEAT = _Row(
        12,
        (0, 4),
        group.HeartbeatRequest,
        group.HeartbeatResponse,
        subject=_MEMBER,
        schema=message_schemas.HEARTBEAT,
    )
    LEAVE_GROUP = _Row(
        13,
        (0, 5),
        group.LeaveGroupRequest,
        group.LeaveGroupResponse,
        errors=("error_code", "members.error_code"),
        subject=RequestSubject("group_id", "members.member_id"),
        schema=message_schemas.LEAVE_GROUP,
    )
    SYNC_GROUP = _Row(
        14,
        (0, 5),
        group.SyncGroupRequest,
        group.SyncGroupResponse,
        subject=_MEMBER,
        schema=message_schemas.SYNC_GROUP,
    )
    DESCRIBE_GROUPS = _Row(
        15,
        (0, 5),
        group_admin.DescribeGroupsRequest,
        group_admin.DescribeGroupsResponse,
        errors=("groups.error_code",),
        schema=message_schemas.DESCRIBE_GROUPS,
    )
    LIST_GROUPS = _Row(
        16,
        (0, 5),
        group_admin.ListGroupsRequest,
        group_admin.ListGroupsResponse,
        schema=message_schemas.LIST_GROUPS,
    )
    API_VERSIONS = _Row(18, (2, 2), discovery.ApiVersionsRequest, discovery.ApiVersionsResponse)
    CREATE_TOPICS = _Row(
        19,
        (4, 4),
        admin.CreateTopicsRequest,
        admin.CreateTopicsResponse,
        errors=("topics.error_code",),
    )
    DELETE_TOPICS = _Row(
        20,
        (5, 5),
        admin.DeleteTopicsRequest,
        admin.DeleteTopicsResponse,
        errors=("responses.error_code",),
    )
    INIT_PRODUCER_ID = _Row(
        22,
        (0, 5),
        transaction.InitProducerIdRequest,
        transaction.InitProducerIdResponse,
        schema=transaction_schemas.INIT_PRODUCER_ID,
    )
    OFFSET_FOR_LEADER_EPOCH = _Row(
        23,
        (3, 3),
        log.OffsetForLeaderEpochRequest,
        log.OffsetForLeaderEpochResponse,
        errors=_PER_PARTITION,
    )
    ADD_PARTITIONS_TO_TXN = _Row(
        24,
        (0, 5),
        transaction.AddPartitionsToTxnRequest,
        transaction.AddPartitionsToTxnResponse,
        errors=(
            "error_code",
            "results_by_transaction.topic_results.results_by_partition.partition_error_code",
        ),
        schema=transaction_schemas.ADD_PARTITIONS_TO_TXN,
    )
    ADD_OFFSETS_TO_TXN = _Row(
        25,
        (0, 4),
        transaction.AddOffsetsToTxnRequest,
        transaction.AddOffsetsToTxnResponse,
        subject=RequestSubject("group_id"),
        schema=transaction_schemas.ADD_OFFSETS_TO_TXN,
    )
    END_TXN = _Row(
        26,
        (0, 4),
        transaction.EndTxnRequest,
        transaction.EndTxnResponse,
        schema=transaction_schemas.END_TXN,
    )
    WRITE_TXN_MARKERS = _Row(
        27,
        (0, 1),
        transaction.WriteTxnMarkersRequest,
        transaction.WriteTxnMarkersResponse,
        errors=("markers.topics.partitions.error_code",),
        schema=transaction_schemas.WRITE_TXN_MARKERS,
    )
    TXN_OFFSET_COMMIT = _Row(
        28,
        (0, 4),
        transaction.TxnOffsetCommitRequest,
        transaction.TxnOffsetCommitResponse,
        errors=_PER_PARTITION,
        subject=_MEMBER,
        schema=transaction_schemas.TXN_OFFSET_COMMIT,
    )
    DESCRIBE_CONFIGS = _Row(
        32,
        (3, 3),
        admin.DescribeConfigsRequest,
        admin.DescribeConfigsResponse,
        errors=("results.error_code",),
    )
    DELETE_GROUPS = _Row(
        42,
        (0, 2),
        group_admin.DeleteGroupsRequest,
        group_admin.DeleteGroupsResponse,
        errors=("results.error_code",),
        schema=message_schemas.DELETE_GROUPS,
    )
    ELECT_LEADERS = _Row(
        43,
        (2, 2),
        admin.ElectLeadersRequest,
        admin.ElectLeadersResponse,
        errors=("error_code", "replica_election_results.partition_result.error_code"),
    )
    ALTER_PARTITION_REASSIGNMENTS = _Row(
        45,
        (0, 0),
        admin.AlterPartitionReassignmentsRequest,
        admin.AlterPartitionReassignmentsResponse,
        errors=("error_code", "responses.partitions.error_code"),
    )
    OFFSET_DELETE = _Row(
        47,
        (0, 0),
        group_admin.OffsetDeleteRequest,
        group_admin.OffsetDeleteResponse,
        errors=_WHOLE_AND_PER_PARTITION,
        schema=message_schemas.OFFSET_DELETE,
    )
    ALTER_PARTITION = _Row(
        56,
        (3, 3),
        controller.AlterPartitionRequest,
        controller.AlterPartitionResponse,
        errors=_WHOLE_AND_PER_PARTITION,
    )
    BROKER_REGISTRATION = _Row(
        62, (4, 4), controller.BrokerRegistrationRequest, controller.BrokerRegistrationResponse
    )
    BROKER_HEARTBEAT = _Row(
        63, (1, 1), controller.BrokerHeartbeatRequest, controller.BrokerHeartbeatResponse
    )
    ALLOCATE_PRODUCER_IDS = _Row(
        67, (0, 0), controller.AllocateProducerIdsRequest, controller.AllocateProducerIdsResponse
    )
    CONSUMER_GROUP_HEARTBEAT = _Row(
        68,
        (0, 0),
        consumer_group.ConsumerGroupHeartbeatRequest,
        consumer_group.ConsumerGroupHeartbeatResponse,
        schema=message_schemas.CONSUMER_GROUP_HEARTBEAT,
    )

    # ZooKeeper's messages are sent in the same frames as Kafka's messages, so no two messages may
    # have the same number. The key of a client's request is its OpCode plus 10,000 (two OpCodes are
    # negative). The key of a packet between servers is its packet type plus 20,000. The answers
    # between servers have no error fields.
    CONNECT = _Row(9_990, (0, 0), zookeeper.ConnectRequest, zookeeper.ConnectResponse)
    CLOSE_SESSION = _Row(
        9_989, (0, 0), zookeeper.CloseSessionRequest, zookeeper.CloseSessionResponse
    )
    CREATE = _Row(10_001, (0, 0), zookeeper.CreateRequest, zookeeper.CreateResponse)
    DELETE = _Row(10_002, (0, 0), zookeeper.DeleteRequest, zookeeper.DeleteResponse)
    EXISTS = _Row(10_003, (0, 0), zookeeper.ExistsRequest, zookeeper.ExistsResponse)
    GET_DATA = _Row(10_004, (0, 0), zookeeper.GetDataRequest, zookeeper.GetDataResponse)
    SET_DATA = _Row(10_005, (0, 0), zookeeper.SetDataRequest, zookeeper.SetDataResponse)
    GET_CHILDREN = _Row(10_008, (0, 0), zookeeper.GetChildrenRequest, zookeeper.GetChildrenResponse)
    PING = _Row(10_011, (0, 0), zookeeper.PingRequest, zookeeper.PingResponse)
    SET_WATCHES = _Row(10_101, (0, 0), zookeeper.SetWatchesRequest, zookeeper.SetWatchesResponse)
    VOTE = _Row(
        20_000, (0, 0), zookeeper_quorum.VoteRequest, zookeeper_quorum.VoteResponse, errors=()
    )
    SUBMIT = _Row(
        20_001, (0, 0), zookeeper_quorum.SubmitRequest, zookeeper_quorum.SubmitResponse, errors=()
    )
    ACK = _Row(20_003, (0, 0), zookeeper_quorum.AckRequest, zookeeper_quorum.AckResponse, errors=())
    TOUCH = _Row(
        20_005, (0, 0), zookeeper_quorum.TouchRequest, zookeeper_quorum.TouchResponse, errors=()
    )
    REVALIDATE = _Row(
        20_006,
        (0, 0),
        zookeeper_quorum.RevalidateRequest,
        zookeeper_quorum.RevalidateResponse,
        errors=(),
    )
    FOLLOWER_INFO = _Row(
        20_011,
        (0, 0),
        zookeeper_quorum.FollowerInfoRequest,
        zookeeper_quorum.FollowerInfoResponse,
        errors=(),
    )
    ACK_NEW_LEADER = _Row(
        20_012,
        (0, 0),
        zookeeper_quorum.AckNewLeaderRequest,
        zookeeper_quorum.AckNewLeaderResponse,
        errors=(),
    )
    ACK_EPOCH = _Row(
        20_018,
        (0, 0),
        zookeeper_quorum.AckEpochRequest,
        zookeeper_quorum.AckEpochResponse,
        errors=(),
    )


API_OF_REQUEST: dict[type, Api] = {api.request: api for api in Api}
API_OF_RESPONSE: dict[type, Api] = {api.response: api for api in Api}
API_BY_LABEL = {api.label: api for api in Api}


# -- unions of messages: a `match` over a union must have a case for each message --

GroupRequest = (
    group.JoinGroupRequest
    | group.SyncGroupRequest
    | group.HeartbeatRequest
    | group.LeaveGroupRequest
    | offset.OffsetCommitRequest
    | offset.OffsetFetchRequest
    | transaction.TxnOffsetCommitRequest
    | group_admin.OffsetDeleteRequest
    | group_admin.DescribeGroupsRequest
    | group_admin.ListGroupsRequest
    | group_admin.DeleteGroupsRequest
)
"""Requests that the group coordinator answers."""

TransactionRequest = (
    transaction.InitProducerIdRequest
    | transaction.AddPartitionsToTxnRequest
    | transaction.AddOffsetsToTxnRequest
    | transaction.EndTxnRequest
)
"""Requests that the transaction coordinator answers."""

AnyRequest = (
    GroupRequest
    | TransactionRequest
    | transaction.WriteTxnMarkersRequest
    | consumer_group.ConsumerGroupHeartbeatRequest
    | discovery.FindCoordinatorRequest
    | discovery.MetadataRequest
    | log.ProduceRequest
    | log.FetchRequest
    | log.ListOffsetsRequest
    | log.OffsetForLeaderEpochRequest
    | discovery.ApiVersionsRequest
    | controller.BrokerRegistrationRequest
    | controller.BrokerHeartbeatRequest
    | controller.AlterPartitionRequest
    | controller.AllocateProducerIdsRequest
    | admin.ElectLeadersRequest
    | admin.AlterPartitionReassignmentsRequest
    | admin.CreateTopicsRequest
    | admin.DeleteTopicsRequest
    | admin.DescribeConfigsRequest
    | zookeeper.ZooKeeperRequest
    | zookeeper_quorum.QuorumRequest
)

AnyResponse = (
    group.JoinGroupResponse
    | group.SyncGroupResponse
    | group.HeartbeatResponse
    | group.LeaveGroupResponse
    | offset.OffsetCommitResponse
    | offset.OffsetFetchResponse
    | transaction.TxnOffsetCommitResponse
    | group_admin.OffsetDeleteResponse
    | group_admin.DescribeGroupsResponse
    | group_admin.ListGroupsResponse
    | group_admin.DeleteGroupsResponse
    | transaction.InitProducerIdResponse
    | transaction.AddPartitionsToTxnResponse
    | transaction.AddOffsetsToTxnResponse
    | transaction.EndTxnResponse
    | transaction.WriteTxnMarkersResponse
    | consumer_group.ConsumerGroupHeartbeatResponse
    | discovery.FindCoordinatorResponse
    | discovery.MetadataResponse
    | log.ProduceResponse
    | log.FetchResponse
    | log.ListOffsetsResponse
    | log.OffsetForLeaderEpochResponse
    | discovery.ApiVersionsResponse
    | controller.BrokerRegistrationResponse
    | controller.BrokerHeartbeatResponse
    | controller.AlterPartitionResponse
    | controller.AllocateProducerIdsResponse
    | admin.ElectLeadersResponse
    | admin.AlterPartitionReassignmentsResponse
    | admin.CreateTopicsResponse
    | admin.DeleteTopicsResponse
    | admin.DescribeConfigsResponse
    | zookeeper.ZooKeeperResponse
    | zookeeper_quorum.QuorumResponse
)

AnyNotice = zookeeper.WatcherEvent | zookeeper_quorum.QuorumNotice
"""Messages that a server sends without a request."""


# -- errors of answers --

_NONE = ErrorCode.NONE
# Most answers have no error. `name` is a property, which is slow, so it is read only once.
_NO_ERROR = _NONE.name

_FirstError = Callable[[object], ErrorCode]


def error_of(response: AnyResponse) -> str:
    """Return the name of the first error in a response, "NONE" if it has no error."""
    error = _FIRST_ERRORS[type(response)](response)
    return _NO_ERROR if error is _NONE else error.name


def _first_error_at(*path: str) -> _FirstError:
    """Return a function that finds the first error at a path in an answer, or NONE."""
    # The function is built only once for each API. To split the path anew for every answer would be
    # one of the larger costs of tracing.
    head: Callable[[object], ErrorCode] = attrgetter(path[0])
    if len(path) == 1:
        return head
    # The first part of the path leads to a list, and the other parts lead into the items of the
    # list. This attrgetter does the same as `head`, but has another type for mypy.
    items_of: Callable[[object], tuple[object, ...]] = attrgetter(path[0])
    error_of_item = _first_error_at(*path[1:])

    def first_error(struct: object) -> ErrorCode:
        for item in items_of(struct):
            error = error_of_item(item)
            if error is not _NONE:
                return error
        return _NONE

    return first_error


def _first_error(paths: tuple[str, ...]) -> _FirstError:
    """Return a function that finds the first error at several paths in an answer, or NONE."""
    readers = [_first_error_at(*path.split(".")) for path in paths]
    if len(readers) == 1:
        return readers[0]

    def first_error(response: object) -> ErrorCode:
        for error_at_path in readers:
            error = error_at_path(response)
            if error is not _NONE:
                return error
        return _NONE

    return first_error


_FIRST_ERRORS = {api.response: _first_error(api.errors) for api in Api}
