"""Endpoint: all connections of one incarnation of a node, both opened and accepted ones.

A node acts as a client on the connections that it opened (see `client_connection`). It acts as a
server on the connections that it accepted (this module). As in Kafka, a server handles one request
at a time per connection.

The messages between two nodes are *frames* (`frames`). How they travel depends on the runtime: over
a simulated link or over a TCP stream. This transport calls `deliver` with each frame that arrives,
and `peer_lost` when a peer's process is gone. The endpoint passes frames to the transport through
`send_frame`. Nothing here depends on the kind of transport.

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
"""The name of the error, because `error_of` returns the name of an error."""

_INCARNATION_SHIFT = 32
"""A connection id has the number of the client's incarnation in the bits above the lowest 32.

The lowest 32 bits count the connections of the incarnation: 0, 1, 2, ... So no two incarnations of
a node use the same id."""


class ConnectionEnd(NamedTuple):
    """Identifies one of the two ends of a connection, within the endpoint that has this end.

    `peer` is the node at the other end. `is_client` is True if the connection was opened here.
    """

    peer: NodeName
    connection_id: int
    is_client: bool


class _ServerConnection:
    """The server's end of a connection.

    The handler has one request at a time; later requests wait.
    """

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

    BaseHost passes the calls of a node on to its endpoint: `connect`, `serve`, `reply` and so on.
    The transport behind `send_frame` keeps the order of the frames to one destination, and may drop
    frames to a node that cannot be reached.

    Of its host, the endpoint uses only the name, incarnation, clock, `after`, `create_future` and
    `trace`.
    """

    def __init__(self, host: Host, send_frame: Callable[[Frame], None]) -> None:
        self.host = host
        self.send_frame = send_frame
        self.check_answer: Callable[[AnyRequest, AnyResponse], None] | None = None
        """If set, it is called with each request and its answer, before the answer is sent."""
        self.before_request: Callable[[AnyRequest], None] | None = None
        """If set, it is called with each request, before the handler is."""
        # A late frame for a connection of an earlier incarnation has an id that is not in use here.
        # So it is never taken for a frame of a connection of this incarnation.
        self._next_connection_id = host.incarnation << _INCARNATION_SHIFT
        self._next_correlation_id = 0
        self._next_request_id = 0
        self._handler: Callable[[IncomingRequest], None] | None = None
        """Called with each request; None as long as the node accepts no connections."""
        self._on_server_end: Callable[[AcceptedConnection], None] | None = None
        self._clients: dict[int, ClientConnection] = {}
        """Connections that this node opened, by connection id."""
        self._servers: dict[tuple[NodeName, int], _ServerConnection] = {}
        """Connections that this node accepted, by client and the client's connection id."""
        self._served: dict[RequestId, tuple[_ServerConnection | None, RequestEnvelope]] = {}
        """Requests that the handler has got and not yet answered.

        Each is stored with its connection, or with None once that connection has ended.
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
        # An answer with UNKNOWN_SERVER_ERROR points to a bug in our server, so it is traced even in
        # a run that traces no other messages.
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
            # The next request waits for a later call of the loop, because this reply may have been
            # called by the handler, which must return before it is called again.
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

        If `incarnation` is given, this incarnation of the peer died. A connection then ends only if
        this end knows that it belongs to that incarnation or to an earlier one. If `incarnation` is
        None, the TCP link to the peer's process broke. Then all connections with the peer end, even
        those that are still connecting.
        """
        for close in self.close_frames_of_lost_peer(peer, incarnation):
            self.deliver(close)

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return the close frames that `peer_lost` would deliver, one per connection.

        A link gate (`cluster.links.gate`) calls this instead of `peer_lost`, because it may have to
        delay some of the frames.
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

        If `purposes` is not empty, only connections with these purposes count. The caller delivers
        the frames to this endpoint, which ends the connections as a TCP reset does. The caller does
        the same at the other end of each connection. `connection_named_by` tells which two frames
        belong together.
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
        """End every connection, as a node does when it is stopped in order."""
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
            # The client opened the connection to an earlier incarnation, or this node has ended the
            # connection.
            self._send_reset(frame.source, frame.connection_id, by_client=False)
        elif connection.serving is not None or connection.waiting:
            # The second condition matters between a reply and the call of `_serve_next`: the
            # handler has no request then, but earlier requests of the connection wait.
            connection.waiting.append(frame.envelope)
        else:
            self._serve(connection, frame.envelope)

    def _serve_next(self, connection: _ServerConnection) -> None:
        # If the connection has ended since the reply, its waiting requests were dropped.
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
        """Forget an accepted connection and its waiting requests; return False if there is none."""
        connection = self._servers.pop(key, None)
        if connection is None:
            return False
        connection.waiting.clear()
        if connection.serving is not None:
            # The handler still has a request and will call `reply`, which must then drop the
            # answer.
            _, envelope = self._served[connection.serving]
            self._served[connection.serving] = (None, envelope)
        return True

    def _send_reset(self, peer: NodeName, connection_id: int, *, by_client: bool) -> None:
        """Send a CloseFrame for a connection that this end does not have, or is ending.

        TCP would send a reset for this connection. (A ResetFrame is something else: it reports that
        a whole process has ended.)
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
    """Return the client and the id of the connection that a CloseFrame ends.

    The two together are unique in a run.
    """
    return (close.source if close.by_client else close.destination, close.connection_id)


def _is_lost(known: Incarnation | None, lost: Incarnation | None) -> bool:
    """Return True if a connection ends because the peer's incarnation `lost` has died.

    `known` is the peer's incarnation at the other end of the connection, as far as this end knows.
    It is None while the connection is connecting; then the connection goes on, because a later
    incarnation may accept it. If `lost` is None, every connection ends.
    """
    return lost is None or (known is not None and known <= lost)
