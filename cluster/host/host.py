"""The Host: the only thing a node may touch, in virtual time and on Ray alike.

A node must not know which runtime it lives in. Clocks, randomness, timers, tasks, connections,
storage and the trace come from here; a dead incarnation's host refuses everything, so that no
cleanup code of a crashed node can reach the world (cancelling a coroutine is not a crash: its
`finally` blocks would run and say LeaveGroup).
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
    """The incarnation is over: whatever still runs on its behalf must end here."""


class Disconnected(Exception):
    """The connection ended: the peer's process died, refused, reset, or the client closed it."""


class RequestTimedOut(Exception):
    """No answer within the request's timeout. Kafka's client then closes the connection."""


class Timer(Protocol):
    """A pending call of Host.after."""

    def cancel(self) -> None:
        """Forget the call; nothing happens if it has fired."""


ResponseCallback = Callable[[AnyResponse | Disconnected | RequestTimedOut], None]


class WaitingRequest(NamedTuple):
    """A request without an answer: the server asked, its API, and for how long: microseconds."""

    peer: NodeName
    api: str
    waited_us: int


class Connection(ABC):
    """A client's connection to one server for one purpose: FIFO, one request served at a time.

    States: connecting, open, closed. Requests sent while connecting are sent when it opens. It
    ends with Disconnected for everything in flight when the peer's process dies, refuses or
    resets, when setup takes longer than `setup_timeout_us`, when a request times out (as Kafka's
    NetworkClient does), and on close().
    """

    peer: NodeName
    purpose: str

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the handshake is done and the connection has not ended."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether it has ended; it never opens again."""

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
        """Send `request`; `on_response` is called exactly once, never before send returns.

        Units: `timeout_us` counts from now. `api_version` None is the newest.
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
        """End the connection; everything in flight fails with Disconnected."""

    @abstractmethod
    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection ends (at once if it has)."""

    @abstractmethod
    def on_notice(self, callback: Callable[[AnyNotice], None]) -> None:
        """Call `callback` with what the server says unasked, in order with its answers."""


class Host(ABC):
    """What a node's incarnation may touch."""

    name: NodeName
    incarnation: Incarnation
    rng: random.Random
    """This node's and this incarnation's own stream."""
    storage: Storage
    """Survives the incarnation."""
    traces_messages: bool
    """Whether rows of MESSAGE_KINDS are wanted: with the trace off they are not even made."""
    simulates_costs: bool = False
    """Whether work costs what ClusterSpec.costs says (virtual time) or what it costs (Ray).

    A virtual host sets it: nodes then wait for the modelled time of a load and of publishing.
    """

    listeners: tuple[BrokerEndpoint, ...] = ()
    """Where Kafka clients reach this node; only brokers in real time have any."""

    @abstractmethod
    def stream(self, purpose: str) -> random.Random:
        """Return a new random stream of this incarnation's for `purpose`, apart from `rng`."""

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
        """Return when a timer that ticks every `period_us` for as long as the node lives begins.

        A period after the start, unless a virtual host draws a part of it for the node's `timer`.
        """
        return period_us

    @abstractmethod
    def create_future(self) -> "Future[Any]":
        """Return a future of the host's loop, for waking a waiting coroutine."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `coroutine` as a task of this incarnation.

        A task that dies with an exception other than HostDead fails the run: it is traced as
        TASK_FAILED and reported, never swallowed.
        """

    @abstractmethod
    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> Connection:
        """Open a connection to `peer`, a name resolved as by DNS: any name may be tried.

        `client_id` is Kafka's `client.id`, which every request on it carries; None: the node's
        name.
        """

    @abstractmethod
    def serve(
        self,
        handler: Callable[[IncomingRequest], None],
        *,
        on_end: Callable[[AcceptedConnection], None] | None = None,
    ) -> None:
        """Accept connections; `handler` gets one request at a time from each.

        `on_end` hears of each accepted connection that ends, unless `hang_up` ended it.
        """

    @abstractmethod
    def notify(self, connection: AcceptedConnection, notice: AnyNotice) -> None:
        """Say something unasked on an accepted connection; nothing happens if it has ended."""

    @abstractmethod
    def hang_up(self, connection: AcceptedConnection) -> None:
        """End an accepted connection; its client sees Disconnected. Twice does no harm."""

    @abstractmethod
    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request, which lets the next one on its connection be served.

        Nothing happens if its connection has ended meanwhile.
        """

    @abstractmethod
    def unanswered(self) -> Iterator[tuple[RequestId, RequestEnvelope]]:
        """Yield the requests that were served, have no answer yet, and whose connection lives."""

    @abstractmethod
    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and write it to the trace."""

    @abstractmethod
    def log(self, message: str) -> None:
        """Write a line to the node's log, for people."""
