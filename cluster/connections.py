"""Connections of one host incarnation: the state machine under both runtimes, over frames.

Owns what a client and a server know of a connection: handshake, FIFO, one request served at a
time, timeouts, and how all of it ends. It must not know what carries the frames: a simulated link
or a TCP stream calls `deliver` and `peer_lost`, and is given frames through `send_frame`.
Source: Kafka `NetworkClient` (client side), `SocketServer.Processor` (muted channels).
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial

from cluster.frames import (
    CloseFrame,
    Frame,
    OpenedFrame,
    OpenFrame,
    RequestFrame,
    ResetFrame,
    ResponseFrame,
)
from cluster.host import (
    Connection,
    Disconnected,
    Host,
    IncomingRequest,
    RequestTimedOut,
    ResponseCallback,
    Timer,
)
from protocol.discovery_messages import FindCoordinatorRequest
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
from protocol.errors import SimulationError
from protocol.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.offset_messages import OffsetCommitRequest, OffsetFetchRequest
from protocol.trace import TraceEvent, TraceKind


class ConnectionState(Enum):
    """States of a client's connection."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class _InFlight:
    """A request that has no answer yet. `deadline_us` is on the host's clock."""

    __slots__ = ("deadline_us", "envelope", "on_response")

    def __init__(
        self, envelope: RequestEnvelope, on_response: ResponseCallback, deadline_us: int
    ) -> None:
        self.envelope = envelope
        self.on_response = on_response
        self.deadline_us = deadline_us


class ClientConnection(Connection):
    """The client's end of a connection. Made by Endpoint.connect."""

    def __init__(
        self,
        endpoint: "Endpoint",
        peer: NodeName,
        purpose: str,
        connection_id: int,
        setup_timeout_us: int,
    ) -> None:
        self.peer = peer
        self.purpose = purpose
        self.connection_id = connection_id
        self.server_incarnation: Incarnation | None = None
        """Incarnation that accepted; None until then."""
        self._endpoint = endpoint
        self._host = endpoint.host
        self._state = ConnectionState.CONNECTING
        self._requests: dict[int, _InFlight] = {}
        self._close_callbacks: list[Callable[[], None]] = []
        self._setup_timer: Timer | None = self._host.after(
            setup_timeout_us, self._setup_timed_out, setup_timeout_us
        )
        # One timer for all requests, at the earliest deadline that was known when it was armed:
        # an answer need not touch it, so requests cost no timers (it fires once per timeout).
        self._deadline_timer: Timer | None = None
        self._deadline_timer_us = 0

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done and the connection has not ended."""
        return self._state is ConnectionState.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether it has ended; it never opens again."""
        return self._state is ConnectionState.CLOSED

    @property
    def in_flight(self) -> int:
        """Number of requests sent and not yet answered."""
        return len(self._requests)

    def send(
        self,
        request: AnyRequest,
        *,
        timeout_us: int,
        on_response: ResponseCallback,
        api_version: int | None = None,
    ) -> None:
        """Send `request`; see Connection.send. On a closed connection it fails as Disconnected."""
        host = self._host
        api_key = API_KEYS[type(request)]
        envelope = RequestEnvelope(
            api_key=api_key,
            api_version=LATEST_VERSIONS[api_key] if api_version is None else api_version,
            correlation_id=self._endpoint.next_correlation_id(),
            client_id=host.name,
            client_host=host.name,
            body=request,
        )
        if host.traces_messages:
            host.trace(self._event(TraceKind.REQUEST_SENT, envelope))
        deadline_us = host.now_us() + timeout_us
        entry = _InFlight(envelope, on_response, deadline_us)
        if self._state is ConnectionState.CLOSED:
            host.after(0, self._fail, entry, Disconnected(f"connection to {self.peer} is closed"))
            return
        self._requests[envelope.correlation_id] = entry
        if self._deadline_timer is None or deadline_us < self._deadline_timer_us:
            self._arm_deadline_timer(deadline_us)
        if self._state is ConnectionState.OPEN:
            self._send_request(envelope)

    async def call(
        self, request: AnyRequest, *, timeout_us: int, api_version: int | None = None
    ) -> AnyResponse:
        """Send `request` and wait for its answer.

        Raises: Disconnected, RequestTimedOut.
        """
        future = self._host.create_future()

        def resolve(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            # A failure travels as a result: a Future whose exception nobody retrieves (its task
            # died) would complain when it is collected, at a moment that no seed decides.
            if not future.done():
                future.set_result(outcome)

        self.send(request, timeout_us=timeout_us, on_response=resolve, api_version=api_version)
        outcome: AnyResponse | Disconnected | RequestTimedOut = await future
        if isinstance(outcome, Disconnected | RequestTimedOut):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the connection; everything in flight fails with Disconnected, after this returns."""
        if self._state is ConnectionState.CLOSED:
            return
        self._send_close("closed by the client")
        finish = self._end(Disconnected(f"connection to {self.peer} closed by the client"))
        self._host.after(0, finish)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection ends (at once if it has)."""
        if self._state is ConnectionState.CLOSED:
            callback()
        else:
            self._close_callbacks.append(callback)

    def opened(self, server_incarnation: Incarnation) -> None:
        """Take the server's acceptance: what was sent while connecting goes out, in order."""
        if self._state is not ConnectionState.CONNECTING:
            return
        self._state = ConnectionState.OPEN
        self.server_incarnation = server_incarnation
        self._cancel_setup_timer()
        for entry in self._requests.values():
            self._send_request(entry.envelope)

    def answered(self, envelope: ResponseEnvelope) -> None:
        """Take the answer to one request."""
        entry = self._requests.pop(envelope.correlation_id, None)
        if entry is None:
            raise SimulationError(
                f"{self.peer} answered correlation id {envelope.correlation_id} on {self.purpose},"
                f" in flight are {list(self._requests)}"
            )
        host = self._host
        if host.traces_messages:
            host.trace(
                self._event(
                    TraceKind.RESPONSE_RECEIVED, entry.envelope, error=error_of(envelope.body)
                )
            )
        entry.on_response(envelope.body)

    def ended(self, reason: str) -> None:
        """Take the end of the connection by the peer or by its process's death."""
        if self._state is not ConnectionState.CLOSED:
            self._end(Disconnected(f"{self.peer}: {reason}"))()

    def _end(self, failure: Disconnected) -> Callable[[], None]:
        """Close, and return what tells everybody who waits."""
        self._state = ConnectionState.CLOSED
        self._endpoint.forget(self)
        self._cancel_setup_timer()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        requests, self._requests = list(self._requests.values()), {}
        callbacks, self._close_callbacks = self._close_callbacks, []
        return partial(self._notify, requests, callbacks, failure)

    def _notify(
        self,
        requests: list[_InFlight],
        callbacks: list[Callable[[], None]],
        failure: Disconnected | RequestTimedOut,
    ) -> None:
        for entry in requests:
            self._fail(entry, failure)
        for callback in callbacks:
            callback()

    def _fail(self, entry: _InFlight, failure: Disconnected | RequestTimedOut) -> None:
        error = "TIMED_OUT" if isinstance(failure, RequestTimedOut) else "DISCONNECTED"
        self._host.trace(self._event(TraceKind.REQUEST_FAILED, entry.envelope, error=error))
        entry.on_response(failure)

    def _arm_deadline_timer(self, deadline_us: int) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_timer_us = deadline_us
        self._deadline_timer = self._host.after(
            max(0, deadline_us - self._host.now_us()), self._check_deadlines
        )

    def _check_deadlines(self) -> None:
        """Time out what is due; Kafka's client then closes the connection."""
        self._deadline_timer = None
        now_us = self._host.now_us()
        expired = [entry for entry in self._requests.values() if entry.deadline_us <= now_us]
        if not expired:
            if self._requests:
                self._arm_deadline_timer(min(e.deadline_us for e in self._requests.values()))
            return
        for entry in expired:
            del self._requests[entry.envelope.correlation_id]
        self._send_close("a request timed out")
        finish = self._end(Disconnected(f"{self.peer}: another request timed out"))
        for entry in expired:
            label = entry.envelope.api_key.label
            self._fail(entry, RequestTimedOut(f"{label} to {self.peer} was not answered in time"))
        finish()

    def _setup_timed_out(self, setup_timeout_us: int) -> None:
        self._setup_timer = None
        self._send_close("setup timed out")
        self._end(Disconnected(f"{self.peer} did not accept within {setup_timeout_us} us"))()

    def _cancel_setup_timer(self) -> None:
        if self._setup_timer is not None:
            self._setup_timer.cancel()
            self._setup_timer = None

    def _send_request(self, envelope: RequestEnvelope) -> None:
        self._endpoint.send_frame(
            RequestFrame(
                source=self._host.name,
                destination=self.peer,
                connection_id=self.connection_id,
                envelope=envelope,
            )
        )

    def _send_close(self, reason: str) -> None:
        self._endpoint.send_frame(
            CloseFrame(
                source=self._host.name,
                destination=self.peer,
                connection_id=self.connection_id,
                by_client=True,
                reason=reason,
            )
        )

    def _event(
        self, kind: TraceKind, envelope: RequestEnvelope, *, error: str | None = None
    ) -> TraceEvent:
        group, member, generation = _group_columns(envelope.body)
        return TraceEvent(
            kind=kind,
            peer=self.peer,
            api=_API_LABELS[envelope.api_key],
            correlation_id=envelope.correlation_id,
            group=group,
            member=member,
            generation=generation,
            cause=self.purpose,
            error=error,
        )


class _ServerConnection:
    """The server's end: at most one request is served, what came behind it waits."""

    __slots__ = ("connection_id", "peer", "peer_incarnation", "serving", "waiting")

    def __init__(self, peer: NodeName, peer_incarnation: Incarnation, connection_id: int) -> None:
        self.peer = peer
        self.peer_incarnation = peer_incarnation
        self.connection_id = connection_id
        self.serving: RequestId | None = None
        self.waiting: deque[RequestEnvelope] = deque()


class Endpoint:
    """All connections of one host incarnation, as client and as server.

    The runtime's Host delegates connect, serve and reply to it. The transport gives it what
    arrives (`deliver`), says when a peer's process is gone (`peer_lost`), and takes frames through
    `send_frame`, in order per destination; it may drop those to a node that cannot be reached.
    Of the host it uses name, incarnation, clock, `after`, `create_future` and `trace`.
    """

    def __init__(self, host: Host, send_frame: Callable[[Frame], None]) -> None:
        self.host = host
        self.send_frame = send_frame
        # Ids of different incarnations never meet: a late frame finds nothing instead of another
        # connection (no set of ids is carried over, so they are told apart by their high bits).
        self._next_connection_id = host.incarnation << 32
        self._next_correlation_id = 0
        self._next_request_id = 0
        self._handler: Callable[[IncomingRequest], None] | None = None
        self._clients: dict[int, ClientConnection] = {}
        self._servers: dict[tuple[NodeName, int], _ServerConnection] = {}
        self._served: dict[RequestId, tuple[_ServerConnection | None, RequestEnvelope]] = {}
        """Requests handed to the handler and not replied; None once their connection has ended."""

    def connect(self, peer: NodeName, purpose: str, *, setup_timeout_us: int) -> ClientConnection:
        """Open a connection to `peer`; see Host.connect."""
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        connection = ClientConnection(self, peer, purpose, connection_id, setup_timeout_us)
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

    def serve(self, handler: Callable[[IncomingRequest], None]) -> None:
        """Accept connections from now on; see Host.serve."""
        self._handler = handler

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
            return
        host = self.host
        if host.traces_messages:
            host.trace(
                TraceEvent(
                    kind=TraceKind.RESPONSE_SENT,
                    peer=connection.peer,
                    api=_API_LABELS[envelope.api_key],
                    correlation_id=envelope.correlation_id,
                    error=error_of(response),
                )
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
            # Not now: the handler may still be in the middle of the request that it answered.
            host.after(0, self._serve_next, connection)

    def deliver(self, frame: Frame) -> None:
        """Take a frame that arrived for this incarnation's node."""
        match frame:
            case RequestFrame():
                self._request(frame)
            case ResponseFrame():
                connection = self._clients.get(frame.connection_id)
                if connection is None:
                    self._send_reset(frame.source, frame.connection_id, by_client=True)
                else:
                    connection.answered(frame.envelope)
            case OpenFrame():
                self._open(frame)
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

        `incarnation` None also ends those that are still connecting (a broken TCP link); a number
        ends only what is known to belong to that incarnation or an earlier one.
        """
        for key, server in list(self._servers.items()):
            if server.peer == peer and _is_lost(server.peer_incarnation, incarnation):
                self._server_ended(key)
        for client in list(self._clients.values()):
            if client.peer == peer and _is_lost(client.server_incarnation, incarnation):
                client.ended("its process is gone")

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node that has, or is being asked for, a connection with this one."""
        names = [server.peer for server in self._servers.values()]
        names += [client.peer for client in self._clients.values()]
        return tuple(dict.fromkeys(names))

    def close_all(self) -> None:
        """End every connection as an orderly stop does: both ends see Disconnected."""
        for key, server in list(self._servers.items()):
            self._send_reset(server.peer, server.connection_id, by_client=False)
            self._server_ended(key)
        for client in list(self._clients.values()):
            client.close()

    def next_correlation_id(self) -> int:
        """Return a correlation id that is unique in this incarnation."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        return correlation_id

    def forget(self, connection: ClientConnection) -> None:
        """Drop a client connection that has ended."""
        self._clients.pop(connection.connection_id, None)

    def _open(self, frame: OpenFrame) -> None:
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
        self._servers[frame.source, frame.connection_id] = _ServerConnection(
            frame.source, frame.source_incarnation, frame.connection_id
        )
        self.send_frame(
            OpenedFrame(
                source=host.name,
                destination=frame.source,
                connection_id=frame.connection_id,
                source_incarnation=host.incarnation,
            )
        )

    def _request(self, frame: RequestFrame) -> None:
        connection = self._servers.get((frame.source, frame.connection_id))
        if connection is None:
            self._send_reset(frame.source, frame.connection_id, by_client=False)
        elif connection.serving is not None or connection.waiting:
            connection.waiting.append(frame.envelope)
        else:
            self._serve(connection, frame.envelope)

    def _serve_next(self, connection: _ServerConnection) -> None:
        if connection.serving is None and connection.waiting:
            self._serve(connection, connection.waiting.popleft())

    def _serve(self, connection: _ServerConnection, envelope: RequestEnvelope) -> None:
        if self._handler is None:
            raise SimulationError(f"{self.host.name} accepted a connection and does not serve")
        request_id = RequestId(self._next_request_id)
        self._next_request_id += 1
        connection.serving = request_id
        self._served[request_id] = (connection, envelope)
        host = self.host
        if host.traces_messages:
            host.trace(
                TraceEvent(
                    kind=TraceKind.REQUEST_RECEIVED,
                    peer=connection.peer,
                    api=_API_LABELS[envelope.api_key],
                    correlation_id=envelope.correlation_id,
                )
            )
        self._handler(
            IncomingRequest(request_id=request_id, peer=connection.peer, envelope=envelope)
        )

    def _server_ended(self, key: tuple[NodeName, int]) -> None:
        connection = self._servers.pop(key, None)
        if connection is None:
            return
        connection.waiting.clear()
        if connection.serving is not None:
            self._served[connection.serving] = (None, self._served[connection.serving][1])

    def _send_reset(self, peer: NodeName, connection_id: int, *, by_client: bool) -> None:
        self.send_frame(
            CloseFrame(
                source=self.host.name,
                destination=peer,
                connection_id=connection_id,
                by_client=by_client,
                reason="no such connection" if by_client else "refused or reset",
            )
        )


_API_LABELS = {key: key.label for key in ApiKey}


def _is_lost(known: Incarnation | None, lost: Incarnation | None) -> bool:
    return lost is None or (known is not None and known <= lost)


def _group_columns(request: AnyRequest) -> tuple[str | None, str | None, int | None]:
    """Return group, member and generation that a request names, None where it names none."""
    match request:
        case HeartbeatRequest() | SyncGroupRequest():
            return request.group_id, request.member_id, request.generation_id
        case OffsetCommitRequest():
            return request.group_id, request.member_id, request.generation_id_or_member_epoch
        case JoinGroupRequest():
            return request.group_id, request.member_id, None
        case LeaveGroupRequest():
            member = request.members[0].member_id if request.members else None
            return request.group_id, member, None
        case OffsetFetchRequest() if request.groups:
            group = request.groups[0]
            return group.group_id, group.member_id, group.member_epoch
        case FindCoordinatorRequest():
            return request.coordinator_keys[0] if request.coordinator_keys else None, None, None
        case _:
            return None, None, None
