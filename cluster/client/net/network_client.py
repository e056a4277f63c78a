"""The connections of one client to all nodes: which node to ask, and when to reconnect.

The parts of a consumer or producer send their requests through one NetworkClient. It knows nothing
of the meaning of the requests. It has one connection for each pair of a node and a purpose. After a
connection has ended, the NetworkClient waits for `reconnect.backoff.ms` or longer before it
connects to that node again. During this wait the node is *held back*.

As in Kafka's client, fetches, requests for metadata and FindCoordinator requests to a broker share
one connection. So a FindCoordinator request waits behind a Fetch that the broker parks until
records arrive. Requests to the group's coordinator have a connection of their own; Kafka's client
achieves the same by a separate node with the id `Integer.MAX_VALUE - id`. There is also a
connection to each bootstrap server that is asked before the client knows the brokers.
`least_loaded_node` does not count the connections to the coordinator, and ignores bootstrap servers
once the brokers are known.

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
"""least_loaded_node skips nodes with this many unanswered requests. Source: ConsumerConfig."""


class KnownNode(NamedTuple):
    """A node for requests that any broker can answer, and the purpose of the connection to it."""

    name: NodeName
    purpose: str


@dataclass(slots=True)
class _ConnectionState:
    """What the client remembers about one node and purpose, even without a connection.

    `failures` counts the connections that ended since a connection last opened. The backoff grows
    with this number. `setup_failures` counts the connections that never opened. The timeout for the
    setup of a connection grows with this number. `retry_at_us` is the end of the backoff.

    `last_attempt_us` is the time of the last attempt to connect. It is -1 before the first attempt,
    so that least_loaded_node prefers a node that was never tried. `was_open` is True once the
    NetworkClient has noticed that the current connection opened.
    """

    connection: Connection | None = None
    failures: int = 0
    setup_failures: int = 0
    retry_at_us: int = 0
    last_attempt_us: int = -1
    was_open: bool = False


class NetworkClient:
    """Kafka's NetworkClient: sends requests to nodes, and connects when needed and allowed."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig | ProducerConfig,
        *,
        known_nodes: Callable[[], tuple[KnownNode, ...]],
        on_disconnect: Callable[[], None],
    ) -> None:
        """Create a client without connections.

        `known_nodes` returns the nodes in the order of the metadata. `on_disconnect` is called when
        a connection has ended, because the metadata may then be stale: the broker may have died. It
        is not called if the client itself closed the connection by `disconnect`.
        Source: Kafka NetworkClient.processDisconnection, which `disconnect` does not call.
        """
        self._host = host
        self._known_nodes = known_nodes
        self._on_disconnect = on_disconnect
        self._reconnect_backoff = ExponentialBackoff(
            host, config.reconnect_backoff_ms, config.reconnect_backoff_max_ms
        )
        # ProducerConfig has no maximum here, so a producer's setup timeout does not grow.
        setup_max_ms = (
            config.socket_connection_setup_timeout_max_ms
            if isinstance(config, ConsumerConfig)
            else config.socket_connection_setup_timeout_ms
        )
        # `delay_us` of this object returns a timeout and not a wait.
        self._setup_timeout = ExponentialBackoff(
            host, config.socket_connection_setup_timeout_ms, setup_max_ms
        )
        self._states: dict[tuple[NodeName, str], _ConnectionState] = {}
        """(node, purpose) -> state. Plain tuples are faster to create than a KnownNode."""
        self._closed_by_disconnect: dict[Connection, None] = {}
        """Connections closed by `disconnect` whose on_close callback has not run yet, as the keys
        of the dict."""

    def send(
        self,
        node: NodeName,
        purpose: str,
        request: AnyRequest,
        response_type: type[R],
        *,
        timeout_us: int,
    ) -> RequestFuture[R]:
        """Send `request` to `node`, and connect to it first if necessary.

        Without an answer the future fails, with DISCONNECTED or TIMED_OUT. It never fails before
        this method has returned, not even if the node is held back. An answer that is not a
        `response_type` is a bug, and ends the run with a SimulationError.
        """
        future: RequestFuture[R] = RequestFuture()
        state = self._refresh_state(node, purpose)

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            if isinstance(outcome, Disconnected | RequestTimedOut):
                self._note_end(state)
                future.fail(error_from_network(outcome))
                return
            if not isinstance(outcome, response_type):
                raise SimulationError(f"{node} answered {type(request).__name__} with {outcome!r}")
            # The answer proves that the connection was open. `_refresh_state` may not have been
            # called since, so this is noted here. When the connection ends, `_note_end` then resets
            # the counters of failures.
            state.was_open = True
            future.complete(outcome)

        connection = self._open_or_reuse(node, purpose, state)
        if connection is None:
            # Fail in the next event, so that the caller can add listeners to the future first.
            self._host.after(0, on_response, Disconnected(f"{node} is held back"))
        else:
            connection.send(request, timeout_us=timeout_us, on_response=on_response)
        return future

    def try_connect(self, node: NodeName, purpose: str) -> None:
        """Begin to connect, unless a connection exists or the node is held back."""
        self._open_or_reuse(node, purpose, self._refresh_state(node, purpose))

    def disconnect(self, node: NodeName, purpose: str) -> None:
        """Close the connection; requests in flight on it fail, and the node is held back."""
        state = self._refresh_state(node, purpose)
        connection = state.connection
        if connection is not None:
            self._closed_by_disconnect[connection] = None
            connection.close()
            self._note_end(state)

    def is_unavailable(self, node: NodeName, purpose: str) -> bool:
        """Return True if the node is held back: it has no connection, and the backoff goes on."""
        state = self._refresh_state(node, purpose)
        return state.connection is None and self._host.now_us() < state.retry_at_us

    def retry_at_us(self, node: NodeName, purpose: str) -> int:
        """Return the end of the node's backoff; a time in the past if it is not held back."""
        return self._refresh_state(node, purpose).retry_at_us

    def least_loaded_node(self) -> KnownNode | None:
        """Return the node to ask for metadata or coordinators; None if all are held back.

        The nodes are compared in the order of the metadata, from a random start. The first of these
        is returned:

        1. a node with an open connection and no request in flight,
        2. the node with an open connection and the fewest requests in flight,
        3. a node to which the client is connecting,
        4. the node without a connection that was not tried for the longest time.
        Source: Kafka NetworkClient.leastLoadedNode.
        """
        nodes = self._known_nodes()
        if not nodes:
            return None
        now_us = self._host.now_us()
        # A random start spreads the clients over the brokers.
        start = self._host.rng.randrange(len(nodes))
        ready: tuple[int, KnownNode] | None = None  # number of requests in flight, node
        connecting: KnownNode | None = None
        can_connect: tuple[int, KnownNode] | None = None  # time of the last attempt, node

        for index in range(len(nodes)):
            node = nodes[(start + index) % len(nodes)]
            state = self._refresh_state(node.name, node.purpose)
            connection = state.connection
            if connection is None:
                # Of the nodes that are not held back, keep the one whose last attempt is oldest.
                if now_us >= state.retry_at_us and (
                    can_connect is None or state.last_attempt_us < can_connect[0]
                ):
                    can_connect = (state.last_attempt_us, node)
            elif not connection.is_open:
                connecting = node  # as in Kafka, the last of several is taken
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
        """Return the unanswered requests of all connections."""
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

    def _refresh_state(self, node: NodeName, purpose: str) -> _ConnectionState:
        """Return the state of a node and purpose, updated if its connection opened or ended."""
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

    def _open_or_reuse(
        self, node: NodeName, purpose: str, state: _ConnectionState
    ) -> Connection | None:
        """Return the connection, which is opened if needed; None if the node is held back."""
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
            # If the client closed the connection by `disconnect`, the end is noted already, and
            # says nothing about the metadata.
            if connection in self._closed_by_disconnect:
                del self._closed_by_disconnect[connection]
                return
            # `_refresh_state` may have noted the end already; then a new connection may exist.
            if state.connection is connection:
                self._note_end(state)
            self._on_disconnect()

        connection.on_close(on_close)
        return connection

    def _note_open(self, state: _ConnectionState) -> None:
        """Make backoff and setup timeout short again, because a connection has opened."""
        state.was_open = True
        state.failures = 0
        state.setup_failures = 0

    def _note_end(self, state: _ConnectionState) -> None:
        """Start the backoff after a connection ended.

        A second call for the same end has no effect, and a call while the connection is not closed
        has none either. If the connection had been open, the backoff is the shortest one.
        Source: Kafka ClusterConnectionStates.disconnected.
        """
        if state.connection is None or not state.connection.is_closed:
            return
        if state.was_open:
            # The connection may have opened and ended between two calls of `_refresh_state`, so
            # the counters are reset here, too.
            self._note_open(state)
        else:
            state.setup_failures += 1
        now_us = self._host.now_us()
        state.connection = None
        state.last_attempt_us = now_us
        state.retry_at_us = now_us + self._reconnect_backoff.delay_us(state.failures)
        state.failures += 1
