"""The Host: the only object through which a node acts, in simulated and in real time.

A node is a broker, a controller, a ZooKeeper server or a client. The same code of a node runs in
two kinds of runtime. In virtual time the whole cluster runs in one process, on a simulated clock.
In real time it runs on the real clock, in one process or (on Ray) in many. A node must not be able
to tell where it runs. So a node reads the clock, sets timers, starts tasks, opens connections,
writes to its disk and writes trace rows only through its host.

Each start of a node gets a host of its own. The life of the node from this start to its end is an
*incarnation*; incarnations are counted from 0. When a node crashes, its host refuses every later
call. So the coroutines of the crashed node may still run, but nothing that they do has an effect.

We do not cancel a crashed node's coroutines instead, because then their `finally` blocks would run:
a consumer would send LeaveGroup, which a killed process does not do.
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
    """Raised by every call of a host whose incarnation is over. The calling code must end."""


class Disconnected(Exception):
    """The connection ended: the peer died, refused or reset it, or the client closed it."""


class RequestTimedOut(Exception):
    """The request got no answer within its timeout. As in Kafka, the connection is closed, too."""


class Timer(Protocol):
    """The handle of a pending call, which Host.after returns."""

    def cancel(self) -> None:
        """Cancel the call; no effect once it has fired."""


ResponseCallback = Callable[[AnyResponse | Disconnected | RequestTimedOut], None]
"""Called with the outcome of a request: the answer or, if none came, the exception that says why.

The exception is passed as an argument, and not raised."""


class WaitingRequest(NamedTuple):
    """A request to `peer` that was sent `waited_us` ago and has no answer yet."""

    peer: NodeName
    api: str
    waited_us: int


class Connection(ABC):
    """A client's connection to one server for one purpose.

    The purpose says what the connection is used for, such as heartbeats; a client may have several
    connections to the same server. The server gets the requests of one connection in the order of
    sending, and handles one at a time.

    A connection is first connecting, then open, then closed. Requests that are sent while it is
    connecting wait until it is open. A connection ends, and its unanswered requests fail with
    Disconnected, if
    - the peer's process dies, or refuses or resets the connection;
    - it is not open after `setup_timeout_us` (see Host.connect);
    - one of its requests times out (Kafka's NetworkClient closes the connection then, too);
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
        """Call `callback` once when the connection ends; immediately if it has ended already."""

    @abstractmethod
    def on_notice(self, callback: Callable[[AnyNotice], None]) -> None:
        """Call `callback` with each notice: a message that the server sends without a request.

        Notices and answers arrive in the order in which the server sent them.
        """


class Host(ABC):
    """Interface through which a node's incarnation acts."""

    name: NodeName
    incarnation: Incarnation
    rng: random.Random
    """Random stream that only this incarnation of this node uses."""
    storage: Storage
    """The node's disk, which the next incarnation gets, too."""
    traces_messages: bool
    """True if requests and responses are traced, too (the kinds in `MESSAGE_KINDS`).

    If it is False, nodes need not even build the trace events of messages.
    """
    simulates_costs: bool = False
    """True if a node must sleep for the time that its work would take (ClusterSpec.costs).

    In virtual time, loading a partition or publishing metadata would otherwise take no time. In
    real time this is False, because the work itself takes time.
    """

    listeners: tuple[BrokerEndpoint, ...] = ()
    """Addresses at which Kafka clients reach this node; only brokers in real time have any."""

    @abstractmethod
    def stream(self, purpose: str) -> random.Random:
        """Return a new random stream of this incarnation for `purpose`, independent of `rng`."""

    @abstractmethod
    def now_us(self) -> int:
        """Return the time of this node's monotonic clock, which a fault may make drift."""

    @abstractmethod
    def wall_us(self) -> int:
        """Return the time of this node's wall clock (since 1970), which a fault may make jump."""

    @abstractmethod
    def after(self, delay_us: int, fn: Callable[[*Ts], None], *args: *Ts) -> Timer:
        """Call `fn(*args)` after `delay_us`, unless cancelled or the incarnation is over."""

    @abstractmethod
    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us` on this node's clock."""

    def first_tick_us(self, timer: str, period_us: int) -> int:
        """Return the delay before the first tick of the periodic timer named `timer`.

        Normally this is `period_us`. In virtual time it may be a random part of `period_us`. All
        nodes of a simulated cluster start at the same moment, and their timers would otherwise tick
        together. The timers of nodes that have run for some time do not tick together.
        """
        return period_us

    @abstractmethod
    def create_future(self) -> "Future[Any]":
        """Return a future of the event loop on which this node's coroutines run."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `coroutine` as a task of this incarnation.

        If an exception other than HostDead ends the task, it is traced as TASK_FAILED and the whole
        run fails.
        """

    @abstractmethod
    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> Connection:
        """Open a connection to `peer`.

        The connection is returned at once, still connecting. If no node is called `peer`, it ends
        soon, as if DNS did not know the name.

        `client_id` is Kafka's `client.id`, which every request on the connection carries; None
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

        `on_end` is called when an accepted connection ends, unless the node ended it by `hang_up`.
        """

    @abstractmethod
    def notify(self, connection: AcceptedConnection, notice: AnyNotice) -> None:
        """Send a notice to the client of an accepted connection, if the connection still exists."""

    @abstractmethod
    def hang_up(self, connection: AcceptedConnection) -> None:
        """End an accepted connection; its client sees Disconnected.

        A second call has no effect.
        """

    @abstractmethod
    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request. The handler then gets the next request of the same connection.

        The answer is dropped if the connection has ended meanwhile.
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
