"""WireListener: the socket at which real Kafka clients reach a broker, and their connections.

The broker's host knows only nodes, which exchange frames (messages between nodes). So the listener
makes each Kafka client look like a node with the name `client:<client id>`: it turns the bytes of a
request into a frame from this node, and the frame with the answer into bytes. A fault can therefore
disturb a Kafka client like any node. If the broker crashes, all connections are closed; while it is
paused, they stay open, but nothing is answered.
"""

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.host.connection_purposes import KAFKA_CLIENT
from cluster.host.frames import (
    CloseFrame,
    Frame,
    OpenFrame,
    RequestFrame,
    ResponseFrame,
)
from cluster.host.host import Timer
from cluster.links.reset import ConnectionName, LinkReset
from cluster.links.rules import LinkRule
from cluster.wire.client_links import ClientLinks
from cluster.wire.codec import MalformedRequest
from cluster.wire.connection import WireConnection
from cluster.wire.exchange import LISTENER_NAME, UnsupportedRequest, read_exchange
from cluster.wire.limits import ConnectionLimits
from protocol.config import BrokerConfig
from protocol.ids import Incarnation, NodeName
from protocol.records.metadata import BrokerEndpoint
from protocol.trace import TraceEvent, TraceKind

CLIENT_PREFIX = "client:"
"""The names of Kafka clients, and of no other nodes, begin with this."""
NAME_MAX = 100
"""A longer client id is cut to this number of characters in the node name."""
WILDCARDS = ("0.0.0.0", "::", "")
"""Addresses that stand for all addresses of the machine."""
BACKLOG = 50
"""Kafka's default of socket.listen.backlog.size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerBinding:
    """The address at which a broker's listener for Kafka clients listens, and its settings.

    If `port` is 0, a free port is used. `advertised_host` is the host in the address that clients
    get; None means `host`, or the name of the machine if `host` stands for all its addresses.
    `first_number` is the number of the first connection; the numbers of different brokers and
    incarnations do not overlap.
    """

    host: str
    port: int
    advertised_host: str | None
    cluster_id: str
    first_number: int
    config: BrokerConfig


class ListeningHost(Protocol):
    """The part of a broker's Host that a listener uses."""

    name: NodeName
    alive: bool

    def now_us(self) -> int:
        """Return the run's time."""

    def after(self, delay_us: int, fn: Callable[[], None]) -> Timer:
        """Call `fn` after `delay_us`; if the broker is paused then, at the end of the pause."""

    def schedule(self, delay_us: int, fn: Callable[[], None]) -> asyncio.Handle:
        """Call `fn` after `delay_us`, even while the broker is paused."""

    def receive(self, frame: Frame) -> None:
        """Receive a frame from the network."""

    def trace(self, event: TraceEvent) -> None:
        """Write a row."""

    def log(self, message: str) -> None:
        """Write a line to the broker's log."""

    def callback_failed(self, error: Exception, what: str) -> None:
        """Report that `what` raised `error`, as a failure of the broker."""


def is_kafka_client(node: NodeName) -> bool:
    """Return True if a node is a Kafka client."""
    return node.startswith(CLIENT_PREFIX)


def client_node(client_id: str) -> NodeName:
    """Return the node name for a client id; all clients with the same id are one node."""
    return NodeName(CLIENT_PREFIX + client_id[:NAME_MAX])


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet.

    Raises: OSError, whose text has the address.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind)
        try:
            # A restarted broker needs its port while the system still keeps the old connections.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise OSError(
            error.errno, f"cannot listen for Kafka clients at {host}:{port}: {error.strerror}"
        ) from error
    return sock


def advertised_host(host: str) -> str:
    """Return the host of the address that clients get: the machine's name if `host` is a wildcard.

    Source: Kafka's advertised.listeners, whose default is the canonical host name.
    """
    return socket.gethostname() if host in WILDCARDS else host


def address_text(end_point: BrokerEndpoint) -> str:
    """Return "host:port" in the format of bootstrap.servers."""
    host = f"[{end_point.host}]" if ":" in end_point.host else end_point.host
    return f"{host}:{end_point.port}"


class WireListener:
    """The listener of one broker incarnation. It accepts connections from `start` on.

    `flush` is called before an answer is sent, because the trace rows about it must be written
    before the client has it. `rng_for` returns the random stream of a link rule for a client.
    """

    def __init__(
        self,
        binding: ListenerBinding,
        sock: socket.socket,
        *,
        loop: asyncio.AbstractEventLoop,
        flush: Callable[[], None],
        rng_for: Callable[[NodeName, str], random.Random],
    ) -> None:
        port: int = sock.getsockname()[1]
        self.port = port
        self.bound_host = binding.host
        self.end_point = BrokerEndpoint(
            name=LISTENER_NAME,
            host=binding.advertised_host or advertised_host(binding.host),
            port=port,
        )
        self.request_max_bytes = binding.config.socket_request_max_bytes
        self.refusals: dict[str, int] = {}
        """Number of connections that were closed, by reason."""
        self._host: ListeningHost | None = None
        """The Host of the broker's incarnation; None before `attach`."""
        self._cluster_id = binding.cluster_id
        self._sock = sock
        self._loop = loop
        self._flush = flush
        self._rng_for = rng_for
        self._next_number = binding.first_number
        self._limits = ConnectionLimits(binding.config)
        self._links: ClientLinks | None = None
        """Link rules at the clients' ends; None before `attach`."""
        self._rules: tuple[LinkRule, ...] = ()
        """The link rules in force, kept for `attach`."""
        self._connections: dict[WireConnection, None] = {}
        """All accepted connections, even connections without a request so far, as keys."""
        self._named: dict[ConnectionName, WireConnection] = {}
        """Client and number -> connection that the broker knows, after its first request."""
        self._server: asyncio.Server | None = None
        """The listening server; None before the loop has made it."""
        self._is_stopped = False

    # -- start and stop --------------------------------------------------------------------------

    def attach(self, host: ListeningHost) -> None:
        """Connect the listener to the Host of the broker's incarnation."""
        self._host = host
        self._links = ClientLinks(
            after=host.schedule,
            to_broker=self._to_broker,
            to_client=self._to_client,
            rng_for=self._rng_for,
        )
        self._links.set_rules(self._rules)

    def start(self) -> None:
        """Begin to listen."""
        task = self._loop.create_task(self._listen(), name="kafka-listener")
        task.add_done_callback(self._report_listen_failure)
        self._check_idle()

    def stop(self) -> None:
        """Stop listening and close every connection, as the end of a process does."""
        # This comes first, so that `closed` sends the dead broker no frames.
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        self._sock.close()
        for connection in list(self._connections):  # a copy: `closed` changes the dict
            connection.end()

    def connection_counts(self) -> dict[NodeName, int]:
        """Return the number of connections of each client."""
        counts: dict[NodeName, int] = {}
        for client, _ in self._named:
            counts[client] = counts.get(client, 0) + 1
        return counts

    # -- frames of the broker --------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """Deliver a frame of the broker to its client."""
        if self._links is not None and not self._is_stopped:
            self._links.receive(frame.destination, frame)

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace the link rules."""
        self._rules = tuple(rules)
        if self._links is not None:
            self._links.set_rules(self._rules)

    def reset(self, reset: LinkReset) -> tuple[ConnectionName, ...]:
        """Reset the clients' ends of connections; return their names.

        The broker's Host closes the broker's ends.
        """
        host = self._host
        if host is None or (reset.purposes and KAFKA_CLIENT not in reset.purposes):
            return ()
        peers = reset.peers_of(host.name)
        names = tuple((client, number) for client, number in self._named if client in peers)
        for client, number in names:
            # The connection is removed before it ends, so that `closed` does not tell the broker.
            connection = self._named.pop((client, number))
            if self._links is not None:
                close_frame = self._close_frame((client, number), by_client=False)
                self._links.reset(client, (close_frame,))
            connection.end(reset=True)
        return names

    def _to_client(self, frame: Frame) -> None:
        """Deliver a frame that has passed the link rules to its connection."""
        match frame:
            case ResponseFrame():
                self._answer(frame)
            case CloseFrame():
                connection = self._named.pop((frame.destination, frame.connection_id), None)
                if connection is not None:
                    connection.end(reset=True)
            case _:
                # An OpenedFrame says nothing new, because TCP has accepted the connection. After a
                # ResetFrame, `stop` closes all connections.
                pass

    def _answer(self, frame: ResponseFrame) -> None:
        """Send an answer as bytes.

        If the client expects no answer (acks=0), the next request is served; if there was an error,
        the connection is closed.
        """
        connection = self._named.get((frame.destination, frame.connection_id))
        exchange = None if connection is None else connection.exchange
        if connection is None or exchange is None:
            return  # the client has closed the connection
        response = frame.envelope.body
        if exchange.expects_answer:
            answer = exchange.answer_bytes(response, self._cluster_id)
            self._flush()
            connection.answer(answer)
        elif exchange.is_refused(response):
            # As in Kafka, closing the connection is the only way to report the failure.
            self.refuse(connection, "a Produce with acks=0 failed, and it has no answer")
        else:
            connection.answer(None)

    def _to_broker(self, frame: Frame) -> None:
        """Give the broker a frame that has passed the link rules."""
        if isinstance(frame, CloseFrame):
            # Given in a later call of the loop, because the broker's host may be sending now:
            # 1. The broker sends an answer, which `take` delivers.
            # 2. The answer makes this listener close the connection (`refuse`).
            # 3. The host must not be told of this before its own `send` has returned.
            self._loop.call_soon(self._give_to_broker, frame)
        else:
            self._give_to_broker(frame)

    def _give_to_broker(self, frame: Frame) -> None:
        """Give the broker a frame, unless the broker is dead."""
        if self._host is not None and self._host.alive:
            self._host.receive(frame)

    # -- called by connections -------------------------------------------------------------------

    def opened(self, connection: WireConnection) -> None:
        """Accept a new connection; close it if its address has too many connections."""
        host = self._host
        if host is None or self._is_stopped:
            connection.end()
            return
        reason = self._limits.admit(connection, host.now_us())
        if reason is not None:
            self._report(connection, reason)
            connection.end()
            return
        self._connections[connection] = None

    def received(self, connection: WireConnection) -> None:
        """Record that bytes have arrived on a connection."""
        if self._host is not None:
            self._limits.touch(connection, self._host.now_us())

    def request(self, connection: WireConnection, payload: bytes) -> None:
        """Send a request to the broker; close the connection if the bytes are no valid request."""
        try:
            exchange = read_exchange(payload)
        except (UnsupportedRequest, MalformedRequest) as error:
            self.refuse(connection, str(error))
            return
        except Exception as error:
            # A bug in our reading of requests must not end the run for all other clients.
            self.refuse(connection, f"the request could not be read: {error!r}")
            return
        host = self._host
        if host is None or self._links is None:
            return  # this never happens: the listener is attached before it listens
        if connection.client is None:
            self._introduce(connection, exchange.header.client_id, host.name)
        client = connection.client
        if client is None:
            return  # this never happens: `_introduce` has set it
        connection.exchange = exchange
        self._links.send(
            client,
            RequestFrame(
                source=client,
                destination=host.name,
                connection_id=connection.number,
                # A slash and the address: Kafka's form of a client host.
                envelope=exchange.envelope(f"/{connection.address[0]}"),
            ),
        )

    def refuse(self, connection: WireConnection, reason: str) -> None:
        """Report the reason, and close a connection because of its bytes."""
        self._report(connection, reason)
        connection.end()

    def closed(self, connection: WireConnection) -> None:
        """Remove a connection that has ended, and inform the broker."""
        # 0 means that the dict did not have the connection: `opened` has refused it.
        if self._connections.pop(connection, 0) == 0:
            return
        host = self._host
        if host is None:
            return
        self._limits.forget(connection, host.now_us())
        if connection.client is None:
            return
        name = (connection.client, connection.number)
        if self._named.pop(name, None) is not None and self._links and not self._is_stopped:
            self._links.send(connection.client, self._close_frame(name, by_client=True))

    # -- inside ----------------------------------------------------------------------------------

    def _introduce(self, connection: WireConnection, client_id: str, destination: NodeName) -> None:
        """Open the connection at the broker, under its client's node name."""
        client = connection.client = client_node(client_id)
        self._named[client, connection.number] = connection
        if self._links is not None:
            self._links.send(
                client,
                OpenFrame(
                    source=client,
                    destination=destination,
                    connection_id=connection.number,
                    # The broker never learns of the restart of a Kafka client.
                    source_incarnation=Incarnation(0),
                    purpose=KAFKA_CLIENT,
                ),
            )

    def _close_frame(self, name: ConnectionName, *, by_client: bool) -> CloseFrame:
        """Return the frame that ends a connection; `by_client` if the client's end sends it."""
        client, number = name
        broker = NodeName("") if self._host is None else self._host.name
        return CloseFrame(
            source=client if by_client else broker,
            destination=broker if by_client else client,
            connection_id=number,
            by_client=by_client,
            reason="the client closed it" if by_client else "the connection was reset",
        )

    def _report(self, connection: WireConnection, reason: str) -> None:
        """Count, log and trace a connection that is closed because of `reason`."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1
        host = self._host
        if host is None or not host.alive:
            return
        host.log(f"closed the connection of {connection.caller}: {reason}")
        host.trace(
            TraceEvent(
                kind=TraceKind.CONNECTION_REFUSED,
                peer=connection.client or "",
                detail={"reason": reason, "caller": connection.caller},
            )
        )

    def _new_connection(self) -> WireConnection:
        """Return the object for a new connection of a client; asyncio calls this method."""
        number = self._next_number
        self._next_number += 1
        return WireConnection(self, number, self._loop)

    async def _listen(self) -> None:
        """Begin to accept connections on the bound socket."""
        server = await self._loop.create_server(
            self._new_connection, sock=self._sock, backlog=BACKLOG
        )
        if self._is_stopped:  # `stop` was called before there was a server to close
            server.close()
        self._server = server

    def _report_listen_failure(self, task: "asyncio.Task[None]") -> None:
        """Report an exception of `_listen` as a failure of the broker."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and self._host is not None:
            self._host.callback_failed(error, task.get_name())

    def _check_idle(self) -> None:
        """Close the connections that are idle for too long, and schedule the next check."""
        host = self._host
        if host is None or self._is_stopped or not host.alive:
            return
        for connection in self._limits.idle(host.now_us()):
            self.refuse(connection, "idle for connections.max.idle.ms")
        host.after(self._limits.next_check_us(host.now_us()), self._check_idle)
