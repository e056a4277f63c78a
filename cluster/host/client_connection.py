"""The client's end of a connection: requests in flight, their timeouts and their outcomes.

A node gets a ClientConnection from Host.connect. The connection tells the node exactly one outcome
of each request that was sent on it: the answer, Disconnected or RequestTimedOut.

The Endpoint in `connections` holds all connections of the node. When a message of the server
arrives, the Endpoint calls a method of the right connection:

- `opened` when the server has accepted the connection,
- `answered` with the answer to a request,
- `noticed` with a notice (a message that the server sends without a request),
- `ended` when the server has ended the connection.

A connection knows neither other connections nor how its messages travel.

Source: Kafka `NetworkClient`, `InFlightRequests`, `ClusterConnectionStates`.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from cluster.host.frames import CloseFrame, Frame, RequestFrame
from cluster.host.host import (
    Connection,
    Disconnected,
    Host,
    RequestTimedOut,
    ResponseCallback,
    Timer,
    WaitingRequest,
)
from cluster.host.message_trace import client_event
from protocol.api import API_OF_REQUEST, AnyNotice, AnyRequest, AnyResponse, error_of
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceKind


class ConnectionState(Enum):
    """A client's connection is first CONNECTING, then OPEN, then CLOSED; OPEN may be skipped."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class InFlightRequest:
    """A request that has no answer yet. Its two times are readings of the host's clock."""

    __slots__ = ("deadline_us", "envelope", "on_response", "sent_us")

    def __init__(
        self,
        envelope: RequestEnvelope,
        on_response: ResponseCallback,
        sent_us: int,
        deadline_us: int,
    ) -> None:
        self.envelope = envelope
        self.on_response = on_response
        self.sent_us = sent_us
        self.deadline_us = deadline_us


class ClientConnection(Connection):
    """The client's end of a connection, created by Endpoint.connect.

    The endpoint passes three functions. `send_frame` sends a frame to the server.
    `next_correlation_id` returns ids that are unique in the endpoint. `on_end` is called when the
    connection ends, before any callback of the node, so that the endpoint forgets the connection.
    """

    def __init__(
        self,
        host: Host,
        peer: NodeName,
        purpose: str,
        *,
        client_id: str,
        connection_id: int,
        setup_timeout_us: int,
        send_frame: Callable[[Frame], None],
        next_correlation_id: Callable[[], int],
        on_end: Callable[["ClientConnection"], None],
    ) -> None:
        self.peer = peer
        self.purpose = purpose
        self.connection_id = connection_id
        self.server_incarnation: Incarnation | None = None
        """The server's incarnation that accepted the connection; None while it is connecting."""
        self._client_id = client_id
        self._host = host
        self._send_frame = send_frame
        self._next_correlation_id = next_correlation_id
        self._on_end = on_end
        self._state = ConnectionState.CONNECTING
        self._requests: dict[int, InFlightRequest] = {}
        """Requests without an answer, by correlation id, in the order of sending."""
        self._close_callbacks: list[Callable[[], None]] = []
        self._on_notice: Callable[[AnyNotice], None] | None = None
        """Takes the server's notices; None before `on_notice` is called."""
        self._setup_timer: Timer | None = self._host.after(
            setup_timeout_us, self._setup_timed_out, setup_timeout_us
        )
        # All requests share one timer, because a timer per request would cost much. It is armed for
        # the earliest deadline. If the request with this deadline is answered, the timer still
        # fires then, and `_check_deadlines` arms it for the next deadline.
        self._deadline_timer: Timer | None = None
        self._deadline_timer_us = 0
        """The deadline for which `_deadline_timer` is armed; without a timer it has no meaning."""

    @property
    def is_open(self) -> bool:
        """True once the handshake is done, until the connection ends."""
        return self._state is ConnectionState.OPEN

    @property
    def is_closed(self) -> bool:
        """True once the connection has ended; it never opens again."""
        return self._state is ConnectionState.CLOSED

    @property
    def in_flight(self) -> int:
        """Number of requests sent and not yet answered."""
        return len(self._requests)

    def waiting(self) -> tuple[WaitingRequest, ...]:
        """Return the requests that are sent and not yet answered, oldest first."""
        now_us = self._host.now_us()
        return tuple(
            WaitingRequest(self.peer, request.envelope.api_key.label, now_us - request.sent_us)
            for request in self._requests.values()
        )

    def send(
        self,
        request: AnyRequest,
        *,
        timeout_us: int,
        on_response: ResponseCallback,
        api_version: int | None = None,
    ) -> None:
        """Send `request`; see Connection.send. On a closed connection the request fails."""
        host = self._host
        api_key = API_OF_REQUEST[type(request)]
        envelope = RequestEnvelope(
            api_key=api_key,
            api_version=api_key.latest_version if api_version is None else api_version,
            correlation_id=self._next_correlation_id(),
            client_id=self._client_id,
            client_host=host.name,
            body=request,
        )
        if host.traces_messages:
            self._trace(TraceKind.REQUEST_SENT, envelope)

        now_us = host.now_us()
        deadline_us = now_us + timeout_us
        entry = InFlightRequest(envelope, on_response, now_us, deadline_us)
        if self._state is ConnectionState.CLOSED:
            # Fail in a later event: `on_response` is never called before `send` returns.
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
            # A failure becomes the Future's result, and not its exception. If the waiting task has
            # died, no code retrieves an exception. Then asyncio logs the exception when the garbage
            # collector finds the Future. In virtual time (on a simulated clock) that moment would
            # differ between two runs of the same seed.
            if not future.done():
                future.set_result(outcome)

        self.send(request, timeout_us=timeout_us, on_response=resolve, api_version=api_version)
        outcome: AnyResponse | Disconnected | RequestTimedOut = await future
        if isinstance(outcome, Disconnected | RequestTimedOut):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the connection; requests in flight fail with Disconnected after this returns."""
        if self._state is ConnectionState.CLOSED:
            return
        self._send_close("closed by the client")
        report_end = self._end(Disconnected(f"connection to {self.peer} closed by the client"))
        self._host.after(0, report_end)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection ends, or now if it has ended."""
        if self._state is ConnectionState.CLOSED:
            callback()
        else:
            self._close_callbacks.append(callback)

    def on_notice(self, callback: Callable[[AnyNotice], None]) -> None:
        """Call `callback` with each message that the server sends without a request."""
        self._on_notice = callback

    def noticed(self, notice: AnyNotice) -> None:
        """Take a notice of the server.

        Raises: SimulationError if the node has passed no callback to `on_notice`.
        """
        if self._on_notice is None:
            raise SimulationError(f"{self.peer} sent {type(notice).__name__} on {self.purpose}")
        self._on_notice(notice)

    def opened(self, server_incarnation: Incarnation) -> None:
        """Take the server's acceptance and send the requests that waited for it, in order."""
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
        # A late answer cannot come, because a request that times out ends the connection. So an
        # answer without a request is a bug.
        if entry is None:
            raise SimulationError(
                f"{self.peer} answered correlation id {envelope.correlation_id} on {self.purpose},"
                f" in flight are {list(self._requests)}"
            )
        if self._host.traces_messages:
            self._trace(TraceKind.RESPONSE_RECEIVED, entry.envelope, error=error_of(envelope.body))
        entry.on_response(envelope.body)

    def ended(self, reason: str) -> None:
        """End this side, because the peer has ended the connection or the peer's process died."""
        if self._state is not ConnectionState.CLOSED:
            # Unlike in `close`, the callbacks may run here: no code of the node waits for this call
            # to return.
            self._end(Disconnected(f"{self.peer}: {reason}"))()

    def _end(self, failure: Disconnected) -> Callable[[], None]:
        """Close the connection; return a function that fails its requests and calls its callbacks.

        The caller decides when that function runs: the node calls `close`, and no callback of the
        node may run before `close` returns.
        """
        self._state = ConnectionState.CLOSED
        self._on_end(self)
        self._cancel_setup_timer()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        requests, self._requests = list(self._requests.values()), {}
        callbacks, self._close_callbacks = self._close_callbacks, []
        return partial(self._report_end, requests, callbacks, failure)

    def _report_end(
        self,
        requests: list[InFlightRequest],
        callbacks: list[Callable[[], None]],
        failure: Disconnected | RequestTimedOut,
    ) -> None:
        """Fail the requests of a connection that has ended, and call its close callbacks."""
        for entry in requests:
            self._fail(entry, failure)
        for callback in callbacks:
            callback()

    def _fail(self, entry: InFlightRequest, failure: Disconnected | RequestTimedOut) -> None:
        """Trace the failure of a request, and pass it to `on_response`.

        A failure is traced even in a run that does not trace messages.
        """
        error = "TIMED_OUT" if isinstance(failure, RequestTimedOut) else "DISCONNECTED"
        self._trace(TraceKind.REQUEST_FAILED, entry.envelope, error=error)
        entry.on_response(failure)

    def _arm_deadline_timer(self, deadline_us: int) -> None:
        """Arm the timer of the deadlines for `deadline_us`; if it is armed already, replace it."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_timer_us = deadline_us
        self._deadline_timer = self._host.after(
            max(0, deadline_us - self._host.now_us()), self._check_deadlines
        )

    def _check_deadlines(self) -> None:
        """Fail requests whose deadline has passed; as in Kafka, also close the connection."""
        self._deadline_timer = None
        now_us = self._host.now_us()
        expired = [entry for entry in self._requests.values() if entry.deadline_us <= now_us]
        if not expired:
            # The request that had this deadline has been answered meanwhile.
            if self._requests:
                self._arm_deadline_timer(min(e.deadline_us for e in self._requests.values()))
            return
        for entry in expired:
            del self._requests[entry.envelope.correlation_id]
        self._send_close("a request timed out")
        report_end = self._end(Disconnected(f"{self.peer}: another request timed out"))
        # `_end` has closed the connection before any callback runs, so a callback cannot send on
        # it.
        for entry in expired:
            label = entry.envelope.api_key.label
            self._fail(entry, RequestTimedOut(f"{label} to {self.peer} was not answered in time"))
        report_end()

    def _setup_timed_out(self, setup_timeout_us: int) -> None:
        self._setup_timer = None
        self._send_close("setup timed out")
        # As in `ended`, the callbacks may run here, because the node did not make this call.
        self._end(Disconnected(f"{self.peer} did not accept within {setup_timeout_us} us"))()

    def _cancel_setup_timer(self) -> None:
        if self._setup_timer is not None:
            self._setup_timer.cancel()
            self._setup_timer = None

    def _send_request(self, envelope: RequestEnvelope) -> None:
        """Send the frame of a request."""
        self._send_frame(
            RequestFrame(
                source=self._host.name,
                destination=self.peer,
                connection_id=self.connection_id,
                envelope=envelope,
            )
        )

    def _send_close(self, reason: str) -> None:
        """Tell the server that this end has closed the connection."""
        self._send_frame(
            CloseFrame(
                source=self._host.name,
                destination=self.peer,
                connection_id=self.connection_id,
                by_client=True,
                reason=reason,
            )
        )

    def _trace(
        self, kind: TraceKind, envelope: RequestEnvelope, *, error: str | None = None
    ) -> None:
        self._host.trace(
            client_event(kind, envelope, peer=self.peer, purpose=self.purpose, error=error)
        )
