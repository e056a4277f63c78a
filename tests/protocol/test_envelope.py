"""The codec of envelopes: a request or response is the same after encoding and decoding.

An envelope is a request or a response together with its header, as one node sends it to another. In
virtual time all nodes are in one process, so the receiver gets the envelope itself. On Ray the
nodes are in several processes, so the envelope is encoded and decoded. The codec is MessagePack (a
compact binary JSON) with the library msgspec. In both cases the receiver must see the same message.
"""

import typing

import msgspec
import pytest

from protocol.api import API_OF_REQUEST, AnyRequest, AnyResponse, Api, error_of
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)


def test_request_envelope_through_the_codec_is_equal() -> None:
    """The codec finds the class of the body, and makes tuples of MessagePack's arrays."""
    envelope = RequestEnvelope(
        api_key=Api.JOIN_GROUP,
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
        ElectLeadersRequest(topic_partitions=(ElectLeadersTopic("t", (0, 2)),)),
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
    """None in place of a list must not become an empty tuple.

    In ElectLeaders None means all partitions. In AlterPartitionReassignments None cancels the
    reassignment.
    """
    envelope = RequestEnvelope(
        api_key=API_OF_REQUEST[type(body)],
        api_version=API_OF_REQUEST[type(body)].latest_version,
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
    """By default an answer has no error, so this is also what `error_of` finds."""
    envelope = ResponseEnvelope(correlation_id=1, body=response_type())
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=ResponseEnvelope)
    assert decoded == envelope
    assert error_of(decoded.body) == "NONE"
