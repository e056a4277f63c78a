"""Frames: what travels between two nodes, in order, by reference or as MessagePack.

A connection is opened, carries requests and responses, and is closed by either side. Every frame
names source and destination node, so that one TCP link between two processes carries all the
connections between their nodes.
"""

import msgspec

from protocol.envelope import RequestEnvelope, ResponseEnvelope

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A longer frame is refused: socket.request.max.bytes is 100 MiB in Kafka, where one is a batch."""


class OpenFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="open"):
    """Asks for a connection. (`source`, `source_incarnation`, `connection_id`) is unique."""

    source: str
    destination: str
    connection_id: int
    source_incarnation: int
    purpose: str


class OpenedFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="opened"):
    """The server accepted it."""

    source: str
    destination: str
    connection_id: int
    source_incarnation: int


class RequestFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="request"):
    """A request on an open connection."""

    source: str
    destination: str
    connection_id: int
    envelope: RequestEnvelope


class ResponseFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="response"):
    """An answer on an open connection."""

    source: str
    destination: str
    connection_id: int
    envelope: ResponseEnvelope


class CloseFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="close"):
    """The connection is over; also the answer to an open that is refused."""

    source: str
    destination: str
    connection_id: int
    by_client: bool
    reason: str = ""


Frame = OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | CloseFrame
