"""Envelopes of requests and responses, with the fields of Kafka's request header.

An envelope holds a message and the fields of its header. In virtual time all nodes are in one
process, with a simulated clock, and envelopes are passed by reference. Between processes envelopes
are encoded as MessagePack.
"""

import msgspec

from protocol.api import AnyRequest, AnyResponse, Api


class RequestEnvelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A request on a connection.

    `client_host` is the sender's node name, or the address of a real Kafka client. `listener_name`
    is the listener at which the request of a Kafka client arrived. For requests of nodes,
    `listener_name` is "".
    """

    api_key: Api
    api_version: int
    correlation_id: int
    client_id: str
    client_host: str
    body: AnyRequest
    listener_name: str = ""


class ResponseEnvelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The answer to the request with the same correlation id on the same connection."""

    correlation_id: int
    body: AnyResponse
