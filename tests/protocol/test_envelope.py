"""The codec of envelopes and the registries that belong to it."""

import typing

import msgspec
import pytest

from protocol.envelope import (
    API_KEYS,
    LATEST_VERSIONS,
    AnyRequest,
    AnyResponse,
    ApiKey,
    RequestEnvelope,
    ResponseEnvelope,
    error_of,
)
from protocol.errors import ErrorCode
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
    ReplicaElectionResult,
    TopicPartitions,
)
from protocol.messages.controller import AlterPartitionResponse
from protocol.messages.discovery import Coordinator, FindCoordinatorResponse
from protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupResponse,
    MemberResponse,
)
from protocol.messages.log import FetchResponse
from protocol.messages.offset import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def test_api_keys_name_every_request_once() -> None:
    """A request without a key could not be sent; two with one key could not be told apart."""
    requests = typing.get_args(AnyRequest)
    assert set(API_KEYS) == set(requests)
    assert sorted(API_KEYS.values()) == sorted(ApiKey)
    assert set(LATEST_VERSIONS) == set(ApiKey)


def test_api_key_label_is_kafkas_printed_name() -> None:
    """Traces and reports print what Kafka's logs print."""
    assert ApiKey.JOIN_GROUP.label == "JoinGroup"
    assert ApiKey.FIND_COORDINATOR.label == "FindCoordinator"


def test_request_envelope_through_the_codec_is_equal() -> None:
    """Ray's nodes get bytes where virtual nodes get the object: both must see the same."""
    envelope = RequestEnvelope(
        api_key=ApiKey.JOIN_GROUP,
        api_version=9,
        correlation_id=17,
        client_id="consumer-1",
        client_host="consumer-1",
        body=JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            protocols=(JoinGroupRequestProtocol("range", b"\x00\x01"),),
        ),
    )
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=RequestEnvelope)
    assert decoded == envelope
    assert isinstance(decoded.body, JoinGroupRequest)
    assert isinstance(decoded.body.protocols, tuple)


@pytest.mark.parametrize(
    "body",
    [
        ElectLeadersRequest(topic_partitions=(TopicPartitions("t", (0, 2)),)),
        ElectLeadersRequest(topic_partitions=None),
        AlterPartitionReassignmentsRequest(
            topics=(
                ReassignableTopic(
                    name="t",
                    partitions=(
                        ReassignablePartition(partition_index=0, replicas=(2, 0, 1)),
                        ReassignablePartition(partition_index=1, replicas=None),
                    ),
                ),
            )
        ),
    ],
)
def test_request_of_an_administrator_through_the_codec_is_equal(body: AnyRequest) -> None:
    """None and the empty tuple mean different things in both."""
    envelope = RequestEnvelope(
        api_key=API_KEYS[type(body)],
        api_version=LATEST_VERSIONS[API_KEYS[type(body)]],
        correlation_id=1,
        client_id="admin-0",
        client_host="admin-0",
        body=body,
    )
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=RequestEnvelope)
    assert decoded == envelope


@pytest.mark.parametrize("response_type", typing.get_args(AnyResponse))
def test_response_envelope_of_every_kind_through_the_codec_is_equal(
    response_type: type[AnyResponse],
) -> None:
    """An untyped codec would turn tuples into lists and break the digests."""
    envelope = ResponseEnvelope(correlation_id=1, body=response_type())
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=ResponseEnvelope)
    assert decoded == envelope
    assert error_of(decoded.body) == "NONE"


def test_error_of_names_the_first_error_wherever_kafka_puts_it() -> None:
    """Kafka has top-level errors, errors per member, per partition and per key."""
    assert error_of(HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)) == "NOT_COORDINATOR"
    assert (
        error_of(
            LeaveGroupResponse(
                members=(MemberResponse(member_id="m", error_code=ErrorCode.UNKNOWN_MEMBER_ID),)
            )
        )
        == "UNKNOWN_MEMBER_ID"
    )
    assert (
        error_of(
            OffsetCommitResponse(
                topics=(
                    OffsetCommitResponseTopic(
                        name="t",
                        partitions=(
                            OffsetCommitResponsePartition(partition_index=0),
                            OffsetCommitResponsePartition(
                                partition_index=1, error_code=ErrorCode.REQUEST_TIMED_OUT
                            ),
                        ),
                    ),
                )
            )
        )
        == "REQUEST_TIMED_OUT"
    )
    assert (
        error_of(
            FindCoordinatorResponse(
                coordinators=(Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),)
            )
        )
        == "COORDINATOR_NOT_AVAILABLE"
    )
    assert error_of(FetchResponse(error_code=ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
    assert (
        error_of(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        == "STALE_BROKER_EPOCH"
    )
    not_available = PartitionResult(
        partition_id=1, error_code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    assert (
        error_of(
            ElectLeadersResponse(
                replica_election_results=(
                    ReplicaElectionResult(
                        topic="t", partition_result=(PartitionResult(partition_id=0), not_available)
                    ),
                )
            )
        )
        == "PREFERRED_LEADER_NOT_AVAILABLE"
    )
    refused = ReassignablePartitionResponse(
        partition_index=0, error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert (
        error_of(
            AlterPartitionReassignmentsResponse(
                responses=(ReassignableTopicResponse(name="t", partitions=(refused,)),)
            )
        )
        == "INVALID_REPLICA_ASSIGNMENT"
    )
