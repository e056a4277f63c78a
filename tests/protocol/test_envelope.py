"""The codec of envelopes: a request or response is the same after encoding and decoding.

An envelope is a request or a response with its header, as one node sends it to another. The codec
is MessagePack, a compact binary form of JSON. The library msgspec decodes the bytes into an object
of the type that the caller names. A node either runs in a process of its own, on Ray, or is
virtual: then all nodes share one process.
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
    """Nodes on Ray get bytes, and virtual nodes get the object. Both must see the same request."""
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
    # The codec chose the class of the body, and made a tuple of the MessagePack array.
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

    In ElectLeaders None means all partitions. In AlterPartitionReassignments it cancels the
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
    """A response has the same types after decoding, for example tuples.

    MessagePack has one kind of array. Without the types, the codec would turn a tuple into a list,
    and then the trace of a run on Ray would differ from that of a virtual run.
    """
    envelope = ResponseEnvelope(correlation_id=1, body=response_type())
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=ResponseEnvelope)
    assert decoded == envelope
    # By default an answer has no error.
    assert error_of(decoded.body) == "NONE"
