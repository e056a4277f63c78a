"""Frames: the messages that travel between two nodes, in order.

A node is a broker, a controller, a client or a ZooKeeper server. Between two nodes in one process,
for example in virtual time (on a simulated clock), a frame is passed by reference. Between two
processes, a frame travels as MessagePack over TCP. Requests and responses are Kafka's, in an
envelope with Kafka's headers.

A connection is opened, carries requests and responses, and is closed by its client or its server.
One TCP link between two processes carries the frames of all connections between their nodes.
Therefore every frame names its source and its destination node. A connection is identified by its
client and the `connection_id`, which the client chooses. The id stays unique when the client is
killed and restarted: each incarnation (life of a node from a start to its end) takes new ids.
"""

import msgspec

from protocol.api import AnyNotice
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.ids import Incarnation, NodeName

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest frame that is accepted, far above any message of the lab.

For comparison: Kafka accepts requests of 100 MiB (socket.request.max.bytes)."""


# `array_like` encodes a frame as an array without field names. `tag` is the first item of the array
# and tells the receiver the kind of the frame.
class OpenFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="open"):
    """The client asks the destination to accept a connection."""

    source: NodeName
    destination: NodeName
    connection_id: int
    source_incarnation: Incarnation
    purpose: str


class OpenedFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="opened"):
    """The server has accepted the connection."""

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
    """A message that a server sends without a request.

    Notices and responses of a connection arrive in the order in which the server sent them.
    """

    source: NodeName
    destination: NodeName
    connection_id: int
    body: AnyNotice


class CloseFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="close"):
    """Ends a connection, or refuses an OpenFrame.

    `by_client` is True if the client of the connection sent the frame. The receiver needs this,
    because two nodes may each have opened a connection to the other, by chance with the same id. If
    `by_client` is True, the receiver accepted the connection, otherwise it opened the connection.
    """

    source: NodeName
    destination: NodeName
    connection_id: int
    by_client: bool
    reason: str = ""


class ResetFrame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="reset"):
    """The incarnation `source_incarnation` of `source` is dead.

    This frame stands for the TCP resets that a machine's kernel sends when a process dies.
    """

    source: NodeName
    destination: NodeName
    source_incarnation: Incarnation


Frame = (
    OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | NoticeFrame | CloseFrame | ResetFrame
)
