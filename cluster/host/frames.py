"""Frames: the messages that travel between two nodes, in order.

A node is a broker, a controller or a client of the cluster. An incarnation is one life of a node,
from a start to its end. A frame travels by reference within a process, and as MessagePack over TCP.
An envelope is a Kafka request or response with its header.

A connection is opened, carries requests and responses, and is closed by its client or its server.
Every frame names its source and destination node, so that one TCP link between two processes
carries all connections between their nodes. The pair (client node, `connection_id`) names one
connection in the whole run: a restarted client uses ids that none of its earlier incarnations used.
"""

import msgspec

from protocol.api import AnyNotice
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.ids import Incarnation, NodeName

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest frame accepted. No message of the lab comes near it. For comparison: Kafka accepts
requests of 100 MiB (socket.request.max.bytes)."""


class OpenFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="open"):
    """Asks for a connection."""

    source: NodeName
    destination: NodeName
    connection_id: int
    source_incarnation: Incarnation
    purpose: str


class OpenedFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="opened"):
    """Reports that the server accepted the connection."""

    source: NodeName
    destination: NodeName
    connection_id: int
    source_incarnation: Incarnation


class RequestFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="request"):
    """A request on an open connection."""

    source: NodeName
    destination: NodeName
    connection_id: int
    envelope: RequestEnvelope


class ResponseFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="response"):
    """An answer on an open connection."""

    source: NodeName
    destination: NodeName
    connection_id: int
    envelope: ResponseEnvelope


class NoticeFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="notice"):
    """A message that a server sends without a request. It keeps its place among the answers."""

    source: NodeName
    destination: NodeName
    connection_id: int
    body: AnyNotice


class CloseFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="close"):
    """Ends a connection, or refuses an OpenFrame.

    `by_client` is True if the client sent the frame. The receiver, a server, then looks for
    `connection_id` among the connections that it accepted. Otherwise the receiver is the client,
    and looks among those that it opened.
    """

    source: NodeName
    destination: NodeName
    connection_id: int
    by_client: bool
    reason: str = ""


class ResetFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="reset"):
    """Reports that an incarnation of `source` is dead.

    It stands for the TCP resets that the machine's kernel sends to every peer of a dead process.
    """

    source: NodeName
    destination: NodeName
    source_incarnation: Incarnation


Frame = (
    OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | NoticeFrame | CloseFrame | ResetFrame
)
