"""Frames: what travels between two nodes, in order, by reference or as MessagePack.

A connection is opened, carries requests and responses, and is closed by either side. Every frame
names source and destination node, so that one TCP link between two processes carries all the
connections between their nodes. (`source` of the client, `connection_id`) names one connection of
the whole run: ids of a restarted client continue where no earlier incarnation has been.
"""

import msgspec

from protocol.api import AnyNotice
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.ids import Incarnation, NodeName

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A longer frame is refused: socket.request.max.bytes is 100 MiB in Kafka, where one is a batch."""


class OpenFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="open"):
    """Asks for a connection."""

    source: NodeName
    destination: NodeName
    connection_id: int
    source_incarnation: Incarnation
    purpose: str


class OpenedFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="opened"):
    """The server accepted it."""

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
    """What a server says unasked on an open connection, in order with its answers there."""

    source: NodeName
    destination: NodeName
    connection_id: int
    body: AnyNotice


class CloseFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="close"):
    """The connection is over; also the answer to an open that is refused.

    `by_client` says who sent it, and so at which end `connection_id` is looked up.
    """

    source: NodeName
    destination: NodeName
    connection_id: int
    by_client: bool
    reason: str = ""


class ResetFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="reset"):
    """The process of `source` is gone: what its kernel says to every peer of that incarnation."""

    source: NodeName
    destination: NodeName
    source_incarnation: Incarnation


Frame = (
    OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | NoticeFrame | CloseFrame | ResetFrame
)
