"""Endpoint: all connections of one host incarnation. Its code is the same in every runtime.

An incarnation is one life of a node, from a start to its end. A frame is one message between two
nodes; `frames` has the kinds of frames. The purpose of a connection is its use, such as heartbeats.

The endpoint owns its node's connections as a client (`client_connection`) and as a server. As in
Kafka, a server handles one request at a time per connection. The transport of frames is a simulated
link or a TCP stream. The transport calls `deliver` and `peer_lost`, and takes frames through
`send_frame`. The endpoint must not know which transport it is.
Source: Kafka `SocketServer.Processor`, which mutes a channel while it serves a request.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cluster.host.client_connection import ClientConnection
from cluster.host.frames import (
    CloseFrame,
    Frame,
    NoticeFrame,
    OpenedFrame,
    OpenFrame,
    RequestFrame,
    ResetFrame,
    ResponseFrame,
)
from cluster.host.host import Host
from cluster.host.incoming_request import AcceptedConnection, IncomingRequest
from cluster.host.message_trace import server_event
from protocol.api import AnyNotice, AnyRequest, AnyResponse, error_of
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.trace import TraceEvent, TraceKind

UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR.name
"""The name, because `error_of` returns the names of errors."""

_INCARNATION_SHIFT = 32
"""Number of the low bits of a connection id, which count the incarnation's connections.

The high bits hold the incarnation's number."""


class ConnectionEnd(NamedTuple):
    """The name of one of a connection's two ends, for the endpoint that has this end.

    `peer` is the node at the other end. `is_client` is True if this end opened the connection.
    """

    peer: NodeName
    connection_id: int
    is_client: bool


class _ServerConnection:
    """The server's end: at most one request is being served; later requests wait."""

    __slots__ = ("connection_id", "peer", "peer_incarnation", "purpose", "serving", "waiting")

    def __init__(self, opened_by: OpenFrame) -> None:
        self.peer = opened_by.source
        self.peer_incarnation = opened_by.source_incarnation
        self.connection_id = opened_by.connection_id
        self.purpose = opened_by.purpose
        self.serving: RequestId | None = None
        """The request that the handler has; None between two requests."""
        self.waiting: deque[RequestEnvelope] = deque()
        """Requests that have arrived while another request was being served."""


class Endpoint:
    """All connections of one host incarnation, as client and as server.

    The runtime's Host delegates connect, serve and reply to the endpoint. The transport calls
    `deliver` for each frame that arrives and `peer_lost` when a peer's process is gone. It takes
    frames through `send_frame`, keeps their order per destination, and may drop frames to a node
    that cannot be reached.
    Of its host, the endpoint uses only the name, incarnation, clock, `after`, `create_future` and
    `trace`.
    """

    def __init__(self, host: Host, send_frame: Callable[[Frame], None]) -> None:
        self.host = host
        self.send_frame = send_frame
        self.check_answer: Callable[[AnyRequest, AnyResponse], None] | None = None
        """Check of each answer against its request before it is sent; None: no check."""
        self.before_request: Callable[[AnyRequest], None] | None = None
        """Gets each request before the handler does; None: no call."""
        # The incarnation in the high bits makes the ids of different incarnations distinct. So a
        # late frame for an earlier incarnation finds no connection, and never a connection of this
        # incarnation.
        self._next_connection_id = host.incarnation << _INCARNATION_SHIFT
        self._next_correlation_id = 0
        self._next_request_id = 0
        self._handler: Callable[[IncomingRequest], None] | None = None
        """Takes the requests; None as long as the node does not serve."""
        self._on_server_end: Callable[[AcceptedConnection], None] | None = None
        self._clients: dict[int, ClientConnection] = {}
        """Connections that this node opened, by connection id."""
        self._servers: dict[tuple[NodeName, int], _ServerConnection] = {}
        """Connections that this node accepted, by client and the client's connection id."""
        self._served: dict[RequestId, tuple[_ServerConnection | None, RequestEnvelope]] = {}
        """Requests that the handler has and did not answer yet, each with its connection.

        The connection is None once it has ended.
        """

    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> ClientConnection:
        """Open a connection to `peer`; see Host.connect."""
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        connection = ClientConnection(
            self.host,
            peer,
            purpose,
            client_id=client_id or self.host.name,
            connection_id=connection_id,
            setup_timeout_us=setup_timeout_us,
            send_frame=self.send_frame,
            next_correlation_id=self._new_correlation_id,
            on_end=self._forget_client,
        )
        self._clients[connection_id] = connection
        self.send_frame(
            OpenFrame(
                source=self.host.name,
                destination=peer,
                connection_id=connection_id,
                source_incarnation=self.host.incarnation,
                purpose=purpose,
            )
        )
        return connection

    def serve(
        self,
        handler: Callable[[IncomingRequest], None],
        on_end: Callable[[AcceptedConnection], None] | None = None,
    ) -> None:
        """Accept connections from now on; see Host.serve."""
        self._handler = handler
        self._on_server_end = on_end

    def notify(self, connection: AcceptedConnection, notice: AnyNotice) -> None:
        """Send an unrequested message; see Host.notify."""
        if connection in self._servers:  # an AcceptedConnection equals the key of the dict
            self.send_frame(
                NoticeFrame(
                    source=self.host.name,
                    destination=connection.peer,
                    connection_id=connection.connection_id,
                    body=notice,
                )
            )

    def hang_up(self, connection: AcceptedConnection) -> None:
        """End an accepted connection; see Host.hang_up."""
        if connection in self._servers:
            self._send_reset(connection.peer, connection.connection_id, by_client=False)
            self._forget_server(connection)

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request; see Host.reply.

        Raises: SimulationError if `request_id` is unknown or was replied before.
        """
        try:
            connection, envelope = self._served.pop(request_id)
        except KeyError:
            raise SimulationError(
                f"{self.host.name} replied twice or to an unknown request {request_id}"
            ) from None
        if connection is None:
            return  # the connection has ended since the request arrived
        if self.check_answer is not None:
            self.check_answer(envelope.body, response)
        host = self.host
        error = error_of(response)
        # UNKNOWN_SERVER_ERROR points to a bug in the server, so it is traced even in a run that
        # traces no messages.
        if host.traces_messages or error == UNKNOWN_SERVER_ERROR:
            host.trace(
                server_event(TraceKind.RESPONSE_SENT, envelope, peer=connection.peer, error=error)
            )
        self.send_frame(
            ResponseFrame(
                source=host.name,
                destination=connection.peer,
                connection_id=connection.connection_id,
                envelope=ResponseEnvelope(correlation_id=envelope.correlation_id, body=response),
            )
        )
        connection.serving = None
        if connection.waiting:
            # The next request is served in a later call of the loop, because the handler may not
            # have returned from the answered request yet.
            host.after(0, self._serve_next, connection)

    def unanswered(self) -> Iterator[tuple[RequestId, RequestEnvelope, bool]]:
        """Yield the requests that wait for an answer; see Host.unanswered."""
        for request_id, (connection, envelope) in self._served.items():
            yield request_id, envelope, connection is not None

    def deliver(self, frame: Frame) -> None:
        """Take a frame that arrived for this incarnation's node.

        A frame of a connection that this end does not have is answered with a close, so that the
        other end ends, too.
        """
        match frame:
            case RequestFrame():
                self._take_request(frame)
            case ResponseFrame():
                connection = self._clients.get(frame.connection_id)
                if connection is None:
                    self._send_reset(frame.source, frame.connection_id, by_client=True)
                else:
                    connection.answered(frame.envelope)
            case NoticeFrame():
                connection = self._clients.get(frame.connection_id)
                if connection is None:
                    self._send_reset(frame.source, frame.connection_id, by_client=True)
                else:
                    connection.noticed(frame.body)
            case OpenFrame():
                self._accept(frame)
            case OpenedFrame():
                connection = self._clients.get(frame.connection_id)
                if connection is None:
                    self._send_reset(frame.source, frame.connection_id, by_client=True)
                else:
                    connection.opened(frame.source_incarnation)
            case CloseFrame():
                if frame.by_client:
                    self._server_ended((frame.source, frame.connection_id))
                elif (connection := self._clients.get(frame.connection_id)) is not None:
                    connection.ended(frame.reason)
            case ResetFrame():
                self.peer_lost(frame.source, frame.source_incarnation)

    def peer_lost(self, peer: NodeName, incarnation: Incarnation | None = None) -> None:
        """End all connections to and from `peer`, whose process died.

        `incarnation` is the peer's incarnation that died; None means that the TCP link broke. With
        None, all connections end, even those that are still connecting. With an incarnation, a
        connection ends only if this end knows that it belongs to that incarnation or to an earlier
        incarnation.
        """
        for close in self.close_frames_of_lost_peer(peer, incarnation):
            self.deliver(close)

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return the close frames that `peer_lost` would deliver, one per connection.

        A link gate (`cluster.links.gate`) uses this, because it may have to hold some of them back.
        """
        servers = (
            server
            for server in self._servers.values()
            if server.peer == peer and _is_lost(server.peer_incarnation, incarnation)
        )
        clients = (
            client
            for client in self._clients.values()
            if client.peer == peer and _is_lost(client.server_incarnation, incarnation)
        )
        return self._close_frames((*servers, *clients), reason="its process is gone")

    def close_frames_of_reset(
        self, peers: Sequence[NodeName], purposes: Sequence[str] = ()
    ) -> tuple[CloseFrame, ...]:
        """Return a close frame for each connection with one of `peers`.

        If `purposes` is not empty, only connections of these purposes count. The delivery of the
        frames to this endpoint ends the connections as a reset does. Both ends of a connection make
        such a frame; `connection_named_by` returns the same name for the two frames.
        """
        servers = (
            server
            for server in self._servers.values()
            if server.peer in peers and (not purposes or server.purpose in purposes)
        )
        clients = (
            client
            for client in self._clients.values()
            if client.peer in peers and (not purposes or client.purpose in purposes)
        )
        return self._close_frames((*servers, *clients), reason="the connection was reset")

    def purpose_of(self, end: ConnectionEnd) -> str | None:
        """Return a connection's purpose, or None if the endpoint has no such connection."""
        if end.is_client:
            client = self._clients.get(end.connection_id)
            return None if client is None else client.purpose
        server = self._servers.get((end.peer, end.connection_id))
        return None if server is None else server.purpose

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node with which this node has, or is opening, a connection."""
        names = [server.peer for server in self._servers.values()]
        names += [client.peer for client in self._clients.values()]
        return tuple(dict.fromkeys(names))  # each name once

    def close_all(self) -> None:
        """End every connection as an orderly stop does: both ends see Disconnected."""
        # Copies, because the calls remove the connections.
        for key, server in list(self._servers.items()):
            self._send_reset(server.peer, server.connection_id, by_client=False)
            self._server_ended(key)
        for client in list(self._clients.values()):
            client.close()

    def _close_frames(
        self,
        connections: Iterable[_ServerConnection | ClientConnection],
        *,
        reason: str,
    ) -> tuple[CloseFrame, ...]:
        """Return a close frame for each connection, as if its peer had sent the frame."""
        return tuple(
            CloseFrame(
                source=connection.peer,
                destination=self.host.name,
                connection_id=connection.connection_id,
                by_client=isinstance(connection, _ServerConnection),
                reason=reason,
            )
            for connection in connections
        )

    def _new_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        return correlation_id

    def _forget_client(self, connection: ClientConnection) -> None:
        self._clients.pop(connection.connection_id, None)

    def _accept(self, frame: OpenFrame) -> None:
        """Accept a connection, or refuse it if the node does not serve."""
        host = self.host
        if self._handler is None:
            host.trace(
                TraceEvent(
                    kind=TraceKind.CONNECTION_REFUSED,
                    peer=frame.source,
                    detail={"reason": "does not serve"},
                )
            )
            self._send_reset(frame.source, frame.connection_id, by_client=False)
            return
        self._servers[frame.source, frame.connection_id] = _ServerConnection(frame)
        self.send_frame(
            OpenedFrame(
                source=host.name,
                destination=frame.source,
                connection_id=frame.connection_id,
                source_incarnation=host.incarnation,
            )
        )

    def _take_request(self, frame: RequestFrame) -> None:
        """Serve a request now, or after the earlier requests of its connection."""
        connection = self._servers.get((frame.source, frame.connection_id))
        if connection is None:
            # The connection belonged to an earlier incarnation, or was ended here.
            self._send_reset(frame.source, frame.connection_id, by_client=False)
        elif connection.serving is not None or connection.waiting:
            # Between a reply and `_serve_next` no request is served, but earlier requests may wait.
            connection.waiting.append(frame.envelope)
        else:
            self._serve(connection, frame.envelope)

    def _serve_next(self, connection: _ServerConnection) -> None:
        # No request waits if the connection has ended since the reply.
        if connection.serving is None and connection.waiting:
            self._serve(connection, connection.waiting.popleft())

    def _serve(self, connection: _ServerConnection, envelope: RequestEnvelope) -> None:
        """Pass a request to the handler under a new request id."""
        if self._handler is None:
            raise SimulationError(f"{self.host.name} accepted a connection and does not serve")
        request_id = RequestId(self._next_request_id)
        self._next_request_id += 1
        connection.serving = request_id
        self._served[request_id] = (connection, envelope)
        host = self.host
        if host.traces_messages:
            host.trace(server_event(TraceKind.REQUEST_RECEIVED, envelope, peer=connection.peer))
        if self.before_request is not None:
            self.before_request(envelope.body)
        self._handler(
            IncomingRequest(
                request_id=request_id,
                peer=connection.peer,
                connection_id=connection.connection_id,
                envelope=envelope,
            )
        )

    def _server_ended(self, key: tuple[NodeName, int]) -> None:
        """Forget an accepted connection that has ended, and notify the node."""
        if self._forget_server(key) and self._on_server_end is not None:
            self._on_server_end(AcceptedConnection(*key))

    def _forget_server(self, key: tuple[NodeName, int]) -> bool:
        """Forget an accepted connection and its waiting requests; return False if unknown."""
        connection = self._servers.pop(key, None)
        if connection is None:
            return False
        connection.waiting.clear()
        if connection.serving is not None:
            # The handler still has the request and will call `reply`, which then drops the answer.
            _, envelope = self._served[connection.serving]
            self._served[connection.serving] = (None, envelope)
        return True

    def _send_reset(self, peer: NodeName, connection_id: int, *, by_client: bool) -> None:
        """Send a CloseFrame for a connection that this end does not have, or is ending.

        TCP would send a reset in these cases; a ResetFrame stands for the end of a whole process.
        """
        self.send_frame(
            CloseFrame(
                source=self.host.name,
                destination=peer,
                connection_id=connection_id,
                by_client=by_client,
                reason="no such connection" if by_client else "refused or reset",
            )
        )


def connection_named_by(close: CloseFrame) -> tuple[NodeName, int]:
    """Return (client, id) of the connection that a CloseFrame ends; the pair is unique in a run."""
    return (close.source if close.by_client else close.destination, close.connection_id)


def _is_lost(known: Incarnation | None, lost: Incarnation | None) -> bool:
    """Return True if a connection ends because the peer's incarnation `lost` has ended.

    If `lost` is None, every connection ends. `known` is the incarnation of the peer that this end
    knows; None while the connection is still opening. Such a connection survives the death of an
    incarnation, because a later incarnation may accept it.
    """
    return lost is None or (known is not None and known <= lost)
