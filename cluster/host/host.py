"""The Host: the only object through which a node acts, in simulated and in real time.

A node is a broker, a controller or a client; its incarnations are its lives, counted from 0. In
virtual time the whole cluster runs in one process, on a simulated clock. On Ray it runs in real
processes and in real time. A node must not know in which runtime it lives. The host provides
clocks, randomness, timers, tasks, connections, storage and the trace. The host of a dead
incarnation refuses every call, so that no cleanup code of a crashed node has an effect.

Rejected alternative: to cancel a crashed node's coroutines. Then their `finally` blocks would run,
and a consumer would send LeaveGroup, which a killed process does not do.
"""

import random
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple

from cluster.host.incoming_request import AcceptedConnection, IncomingRequest
from partition_log.storage import Storage
from protocol.api import AnyNotice, AnyRequest, AnyResponse
from protocol.envelope import RequestEnvelope
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.records.metadata import BrokerEndpoint
from protocol.trace import TraceEvent

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class HostDead(Exception):
    """A call for an incarnation that is over. Code that still runs for it must end."""


class Disconnected(Exception):
    """The connection ended: the peer died, refused or reset it, or the client closed it."""


class RequestTimedOut(Exception):
    """No answer within the request's timeout. Kafka's client then closes the connection."""


class Timer(Protocol):
    """A pending call of Host.after."""

    def cancel(self) -> None:
        """Cancel the call; no effect once it has fired."""


ResponseCallback = Callable[[AnyResponse | Disconnected | RequestTimedOut], None]
"""Takes the outcome of a request: the answer, or the exception that says why there is no answer."""


class WaitingRequest(NamedTuple):
    """A request that is sent and not yet answered. It was sent `waited_us` ago."""

    peer: NodeName
    api: str
    waited_us: int


class Connection(ABC):
    """A client's connection to one server for one purpose.

    The server gets the requests in the order of sending, and serves one at a time. A purpose is the
    use of a connection, such as heartbeats. A connection is connecting, open or closed. A request
    that is sent while the connection is connecting leaves when it opens. In these cases the
    connection ends, and requests in flight fail with Disconnected:
    - the peer's process dies, refuses or resets;
    - setup takes longer than `setup_timeout_us`;
    - a request times out (as in Kafka's NetworkClient);
    - the client calls `close`.
    """

    peer: NodeName
    purpose: str

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """True once the handshake is done, until the connection ends."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True once the connection has ended; it never opens again."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Number of requests sent and not yet answered."""

    @abstractmethod
    def waiting(self) -> tuple["WaitingRequest", ...]:
        """Return the requests that are sent and not yet answered, oldest first."""

    @abstractmethod
    def send(
        self,
        request: AnyRequest,
        *,
        timeout_us: int,
        on_response: ResponseCallback,
        api_version: int | None = None,
    ) -> None:
        """Send `request`; `on_response` is called exactly once, after `send` has returned.

        The timeout begins now, not when the connection opens. The request is sent in `api_version`
        of its API, by default in the newest version.
        """

    @abstractmethod
    async def call(
        self, request: AnyRequest, *, timeout_us: int, api_version: int | None = None
    ) -> AnyResponse:
        """Send `request` and wait for its answer.

        Raises: Disconnected, RequestTimedOut.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection; requests in flight fail with Disconnected."""

    @abstractmethod
    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection ends, or now if it has ended."""

    @abstractmethod
    def on_notice(self, callback: Callable[[AnyNotice], None]) -> None:
        """Call `callback` with each unrequested message of the server.

        Such messages and the answers arrive in the order in which the server sent them.
        """


class Host(ABC):
    """Interface through which a node's incarnation acts."""

    name: NodeName
    incarnation: Incarnation
    rng: random.Random
    """Random stream that only this incarnation of this node uses."""
    storage: Storage
    """Disk of the node; outlives the incarnation."""
    traces_messages: bool
    """False if the trace has no rows of messages (`MESSAGE_KINDS`): nodes need not build them."""
    simulates_costs: bool = False
    """True in virtual time: nodes must wait for the modelled time of work (ClusterSpec.costs).

    False in real time, where such work (loading a partition, publishing metadata) takes real time.
    """

    listeners: tuple[BrokerEndpoint, ...] = ()
    """Addresses at which Kafka clients reach this node; only brokers in real time have any."""

    @abstractmethod
    def stream(self, purpose: str) -> random.Random:
        """Return a new random stream of this incarnation for `purpose`, independent of `rng`."""

    @abstractmethod
    def now_us(self) -> int:
        """Return this node's monotonic clock in microseconds (with its drift, if any)."""

    @abstractmethod
    def wall_us(self) -> int:
        """Return microseconds since the epoch on this node's wall clock, which may jump."""

    @abstractmethod
    def after(self, delay_us: int, fn: Callable[[*Ts], None], *args: *Ts) -> Timer:
        """Call `fn(*args)` after `delay_us`, unless cancelled or the incarnation is over."""

    @abstractmethod
    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us` on this node's clock."""

    def first_tick_us(self, timer: str, period_us: int) -> int:
        """Return the delay of the first tick of a timer that ticks every `period_us`.

        The delay is one period here. A virtual host may instead draw a random part of a period.
        Then the node behaves as one that has run for some time: the next tick of its timer may come
        at any moment. `timer` is the timer's name.
        """
        return period_us

    @abstractmethod
    def create_future(self) -> "Future[Any]":
        """Return a future of the host's loop, for waking a waiting coroutine."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `coroutine` as a task of this incarnation.

        If a task dies with an exception other than HostDead, the run fails. The failure is traced
        as TASK_FAILED and reported.
        """

    @abstractmethod
    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> Connection:
        """Open a connection to `peer`.

        If no node has the name `peer`, the connection fails as if the name were missing in DNS.

        `client_id` is Kafka's `client.id`, which every request on the connection carries. None
        means the node's name.
        """

    @abstractmethod
    def serve(
        self,
        handler: Callable[[IncomingRequest], None],
        *,
        on_end: Callable[[AcceptedConnection], None] | None = None,
    ) -> None:
        """Accept connections; `handler` gets one request at a time from each.

        `on_end` is called for each accepted connection that ends, unless `hang_up` ended it.
        """

    @abstractmethod
    def notify(self, connection: AcceptedConnection, notice: AnyNotice) -> None:
        """Send an unrequested message on an accepted connection; no effect once it has ended."""

    @abstractmethod
    def hang_up(self, connection: AcceptedConnection) -> None:
        """End an accepted connection; its client sees Disconnected.

        A second call has no effect.
        """

    @abstractmethod
    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request, so that the next request on its connection can be served.

        Does nothing if the connection has ended meanwhile.
        """

    @abstractmethod
    def unanswered(self) -> Iterator[tuple[RequestId, RequestEnvelope, bool]]:
        """Yield the requests that the handler has got and not yet answered, oldest first.

        The bool is True if the request's connection is alive.
        """

    @abstractmethod
    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and write it to the trace."""

    @abstractmethod
    def log(self, message: str) -> None:
        """Write a line to the node's log, for people."""
