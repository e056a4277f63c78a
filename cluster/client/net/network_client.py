"""Connections of one client: which node to ask, when to reconnect, how long to hold back.

Owns one connection per (node, purpose) and its reconnect backoff. Fetches, lookups and metadata
share one, as in Kafka's client: a lookup waits behind a parked Fetch. The coordinator's is separate
(there a node of its own, `Integer.MAX_VALUE - id`), and so are those to bootstrap servers, which
are used until the brokers are known; least_loaded_node looks at neither after that.
It must not know what the requests mean.
Source: Kafka NetworkClient, ClusterConnectionStates, ConsumerNetworkClient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from cluster.client.net.errors import error_from_network
from cluster.client.net.futures import RequestFuture
from cluster.client.net.retries import ExponentialBackoff
from cluster.host.host import (
    Connection,
    Disconnected,
    Host,
    RequestTimedOut,
    WaitingRequest,
)
from protocol.api import AnyRequest, AnyResponse
from protocol.config import ConsumerConfig, ProducerConfig
from protocol.errors import SimulationError
from protocol.ids import NodeName

R = TypeVar("R", bound=AnyResponse)

MAX_IN_FLIGHT_REQUESTS = 100
"""More unanswered requests than this, and a node is not asked. Source: ConsumerConfig (100)."""


class KnownNode(NamedTuple):
    """A node that may be asked for metadata and coordinators, and the connection for it."""

    name: NodeName
    purpose: str


@dataclass(slots=True)
class _ConnectionState:
    """What is known of one (node, purpose), over all its connections.

    `failures` and `setup_failures` count failures since the connection last opened; times are on
    the host's clock.
    """

    connection: Connection | None = None
    failures: int = 0
    setup_failures: int = 0
    retry_at_us: int = 0
    last_attempt_us: int = -1
    was_open: bool = False


class NetworkClient:
    """Kafka's NetworkClient: sends requests to nodes, connecting when it must and may."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig | ProducerConfig,
        *,
        known_nodes: Callable[[], tuple[KnownNode, ...]],
        on_disconnect: Callable[[], None],
    ) -> None:
        """Make a client without connections.

        `known_nodes` are asked for in the order of the metadata. `on_disconnect` is called after a
        connection ended, but for those that were ended by `disconnect`: those are no sign of stale
        metadata. Source: Kafka NetworkClient.processDisconnection, which `disconnect` goes past.
        """
        self._host = host
        self._known_nodes = known_nodes
        self._on_disconnect = on_disconnect
        self._reconnect_backoff = ExponentialBackoff(
            host, config.reconnect_backoff_ms, config.reconnect_backoff_max_ms
        )
        setup_max_ms = (
            config.socket_connection_setup_timeout_max_ms
            if isinstance(config, ConsumerConfig)
            else config.socket_connection_setup_timeout_ms
        )
        self._setup_timeout = ExponentialBackoff(
            host, config.socket_connection_setup_timeout_ms, setup_max_ms
        )
        self._states: dict[tuple[NodeName, str], _ConnectionState] = {}
        """By node and purpose; not by KnownNode, which takes longer to make than to look up."""
        self._hung_up: dict[Connection, None] = {}
        """Connections that `disconnect` closed and that have not said so yet."""

    def send(
        self,
        node: NodeName,
        purpose: str,
        request: AnyRequest,
        response_type: type[R],
        *,
        timeout_us: int,
    ) -> RequestFuture[R]:
        """Send `request` to `node`, connecting first if need be.

        Fails with DISCONNECTED or TIMED_OUT; a node that is held back after a failed connection
        fails the request at once, but never before this returns.
        Raises (later, in the host): SimulationError if the answer is of another type.
        """
        future: RequestFuture[R] = RequestFuture()
        state = self._state(node, purpose)

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            if isinstance(outcome, Disconnected | RequestTimedOut):
                self._note_end(state)
                future.fail(error_from_network(outcome))
                return
            if not isinstance(outcome, response_type):
                raise SimulationError(f"{node} answered {type(request).__name__} with {outcome!r}")
            state.was_open = True
            future.complete(outcome)

        connection = self._connection(node, purpose, state)
        if connection is None:
            self._host.after(0, on_response, Disconnected(f"{node} is held back"))
        else:
            connection.send(request, timeout_us=timeout_us, on_response=on_response)
        return future

    def try_connect(self, node: NodeName, purpose: str) -> None:
        """Begin to connect unless there is a connection or the node is held back."""
        self._connection(node, purpose, self._state(node, purpose))

    def disconnect(self, node: NodeName, purpose: str) -> None:
        """Close the connection; what is in flight on it fails. Reconnecting is held back."""
        state = self._state(node, purpose)
        connection = state.connection
        if connection is not None:
            self._hung_up[connection] = None
            connection.close()
            self._note_end(state)

    def is_unavailable(self, node: NodeName, purpose: str) -> bool:
        """Whether the last connection failed and reconnecting is held back."""
        state = self._state(node, purpose)
        return state.connection is None and self._host.now_us() < state.retry_at_us

    def retry_at_us(self, node: NodeName, purpose: str) -> int:
        """Return until when reconnecting is held back, after a connection has failed."""
        return self._state(node, purpose).retry_at_us

    def least_loaded_node(self) -> KnownNode | None:
        """Return the node that is asked for metadata and coordinators; None if all are held back.

        Connected and idle first, then connected with the fewest requests in flight, then
        connecting, then the one whose last connection attempt is longest ago. Equals are taken in
        the order of the metadata from a random start.
        Source: Kafka NetworkClient.leastLoadedNode.
        """
        nodes = self._known_nodes()
        if not nodes:
            return None
        now_us = self._host.now_us()
        start = self._host.rng.randrange(len(nodes))
        ready: tuple[int, KnownNode] | None = None
        connecting: KnownNode | None = None
        can_connect: tuple[int, KnownNode] | None = None
        for index in range(len(nodes)):
            node = nodes[(start + index) % len(nodes)]
            state = self._state(node.name, node.purpose)
            connection = state.connection
            if connection is None:
                if now_us >= state.retry_at_us and (
                    can_connect is None or state.last_attempt_us < can_connect[0]
                ):
                    can_connect = (state.last_attempt_us, node)
            elif not connection.is_open:
                connecting = node
            elif connection.in_flight == 0:
                return node
            elif connection.in_flight < MAX_IN_FLIGHT_REQUESTS and (
                ready is None or connection.in_flight < ready[0]
            ):
                ready = (connection.in_flight, node)
        if ready is not None:
            return ready[1]
        if connecting is not None:
            return connecting
        return None if can_connect is None else can_connect[1]

    def waiting(self) -> tuple[WaitingRequest, ...]:
        """Return the requests that have no answer, of all connections."""
        return tuple(
            request
            for state in self._states.values()
            if state.connection is not None and state.connection.in_flight
            for request in state.connection.waiting()
        )

    def close(self) -> None:
        """Close every connection."""
        for state in self._states.values():
            if state.connection is not None:
                state.connection.close()

    def _state(self, node: NodeName, purpose: str) -> _ConnectionState:
        key = (node, purpose)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _ConnectionState()
        elif state.connection is not None:
            if state.connection.is_closed:
                self._note_end(state)
            elif state.connection.is_open and not state.was_open:
                self._note_open(state)
        return state

    def _connection(
        self, node: NodeName, purpose: str, state: _ConnectionState
    ) -> Connection | None:
        if state.connection is not None:
            return state.connection
        now_us = self._host.now_us()
        if now_us < state.retry_at_us:
            return None
        state.last_attempt_us = now_us
        state.was_open = False
        connection = self._host.connect(
            node, purpose, setup_timeout_us=self._setup_timeout.delay_us(state.setup_failures)
        )
        state.connection = connection

        def on_close() -> None:
            if connection in self._hung_up:
                del self._hung_up[connection]
                return
            if state.connection is connection:
                self._note_end(state)
            self._on_disconnect()

        connection.on_close(on_close)
        return connection

    def _note_open(self, state: _ConnectionState) -> None:
        state.was_open = True
        state.failures = 0
        state.setup_failures = 0

    def _note_end(self, state: _ConnectionState) -> None:
        """Hold the node back. A connection that had opened starts the backoff anew.

        Source: Kafka ClusterConnectionStates.disconnected. Seen late, or twice, it does nothing.
        """
        if state.connection is None or not state.connection.is_closed:
            return
        if state.was_open:
            self._note_open(state)
        else:
            state.setup_failures += 1
        now_us = self._host.now_us()
        state.connection = None
        state.last_attempt_us = now_us
        state.retry_at_us = now_us + self._reconnect_backoff.delay_us(state.failures)
        state.failures += 1
