"""A client of ZooKeeper, as in ZooKeeper's own library: one session, on changing connections.

The servers keep a session for each client. If a connection ends, the client continues its session
on a connection to another server, and sets its watches there again. The session expires if no
server hears of the client for the length of the session timeout. Then ZooKeeper deletes the
session's ephemeral znodes. The client has no timer for the expiry: it learns that its session has
expired only from the answer of a server (ZK-13).

A ZooKeeperHandle is one session. It chooses a server, sends pings to it, and notices if the server
is silent. Ids such as ZK-13 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: ZooKeeper `ClientCnxn`, `ZooKeeper.ZKWatchManager`, `StaticHostProvider`.
DEVIATION: after the last server of the list, ZooKeeper's client waits 1 s before it begins again
with the first server; this client does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from cluster.host.connection_purposes import ZOOKEEPER
from cluster.host.host import Connection, Disconnected, Host, RequestTimedOut, Timer
from cluster.zookeeper.traces import client_state, event_received
from protocol.api import AnyNotice, AnyResponse
from protocol.errors import SimulationError
from protocol.ids import NodeName
from protocol.messages.zookeeper import (
    NO_SESSION,
    NO_ZXID,
    CloseSessionRequest,
    ConnectRequest,
    ConnectResponse,
    ExistsRequest,
    GetChildrenRequest,
    GetDataRequest,
    KeeperError,
    PingRequest,
    SetWatchesRequest,
    WatcherEvent,
    WatchType,
    ZooKeeperRequest,
    ZooKeeperResponse,
    Zxid,
)

RECONNECT_MAX_MS = 1_000
"""Limit of the random time before a client connects again. Source: ClientCnxn."""
_MS = 1_000
"""Microseconds in a millisecond."""


class KeeperState(StrEnum):
    """State of a session as its client knows it. Source: Watcher.Event.KeeperState."""

    SYNC_CONNECTED = "SyncConnected"
    DISCONNECTED = "Disconnected"
    EXPIRED = "Expired"


class KeeperException(Exception):
    """An operation failed with `code`. After ConnectionLoss it may have been applied or not."""

    def __init__(self, code: KeeperError, path: str = "") -> None:
        super().__init__(f"{code.name} {path}".rstrip())
        self.code = code


Outcome = Callable[[ZooKeeperResponse | KeeperError], None]
"""Called once, with the answer to a request, or with an error if no answer came."""


@dataclass(slots=True)
class _Packet:
    """A request that has no answer yet."""

    request: ZooKeeperRequest
    on_outcome: Outcome


class ZooKeeperHandle:
    """One session, which begins to connect when the handle is created.

    `on_state` is called when the session connects, disconnects or expires, and `on_event` when a
    watch has fired. These calls and the answers to requests come in the order in which the server
    sent them. When the session has expired or was closed, every further request fails.
    """

    def __init__(
        self,
        host: Host,
        servers: Sequence[NodeName],
        session_timeout_ms: int,
        *,
        on_state: Callable[[KeeperState], None],
        on_event: Callable[[WatcherEvent], None],
    ) -> None:
        self._host = host
        self._servers = list(servers)
        # Each client tries the servers in an order of its own, which spreads the clients.
        host.rng.shuffle(self._servers)
        self._next_server = 0
        """Number of attempts to connect so far; the next attempt uses this index, modulo the number
        of servers."""
        # `_timeout_us` is the session timeout that applies: the wanted timeout at first, and the
        # granted timeout once a server has granted one.
        self._timeout_us = session_timeout_ms * _MS
        self._wanted_timeout_ms = session_timeout_ms
        self._on_state = on_state
        self._on_event = on_event
        self.session_id = NO_SESSION
        """Id of the session; NO_SESSION until a server has opened one."""
        self.state: KeeperState | None = None
        """None until the first connection."""
        self._is_closed = False
        self._connection: Connection | None = None
        self.last_zxid = NO_ZXID
        """The newest transaction that an answer has shown."""
        self._queued: list[_Packet] = []
        """Requests that wait for a connection."""
        self._in_flight: dict[int, _Packet] = {}
        """Requests that were sent and have no answer, by their numbers."""
        self._next_packet = 0
        self._last_sent_us = 0
        """Time of the last request; at first, of the attempt to connect."""
        self._last_heard_us = 0
        """Time of the server's last message; at first, of the attempt to connect."""
        self._timer: Timer | None = None
        """The timer of the next `_check_silence` or, without a connection, of `_connect`."""
        # The paths with a watch of each kind, as the keys of the dicts.
        self._data_watches: dict[str, None] = {}
        self._exist_watches: dict[str, None] = {}
        self._child_watches: dict[str, None] = {}
        self._connect()

    @property
    def is_alive(self) -> bool:
        """True until the session expires or is closed."""
        return not self._is_closed and self.state is not KeeperState.EXPIRED

    @property
    def is_connected(self) -> bool:
        """True if a server has accepted the session on the present connection."""
        return self.state is KeeperState.SYNC_CONNECTED

    async def call(self, request: ZooKeeperRequest) -> ZooKeeperResponse:
        """Carry out one request. Raises: KeeperException."""
        future = self._host.create_future()

        def resolve(outcome: ZooKeeperResponse | KeeperError) -> None:
            if not future.done():  # it is done if the calling task was cancelled meanwhile
                future.set_result(outcome)

        self.send(request, resolve)
        outcome: ZooKeeperResponse | KeeperError = await future
        path = getattr(request, "path", "")  # not every request has a path
        if isinstance(outcome, KeeperError):
            raise KeeperException(outcome, path)
        if outcome.error_code is not KeeperError.NONE:
            raise KeeperException(outcome.error_code, path)
        return outcome

    def send(self, request: ZooKeeperRequest, on_outcome: Outcome) -> None:
        """Send a request, or queue it until there is a connection.

        `on_outcome` gets ConnectionLoss if the connection ends before the answer. It gets
        SessionExpired if the session is over (ZK-15).
        """
        packet = _Packet(request, on_outcome)
        if not self.is_alive:
            # Fail in a later event: `on_outcome` is never called before `send` returns.
            self._host.after(0, on_outcome, KeeperError.SessionExpired)
        elif self.is_connected:
            self._send(packet)
        else:
            self._queued.append(packet)

    def close(self, on_closed: Callable[[], None]) -> None:
        """Close the session.

        If the client is connected, its server deletes the session's ephemeral znodes now (ZK-11).
        If it is not connected, these znodes stay until the leader expires the session.
        """
        if not self.is_connected:
            self._stop()
            on_closed()
            return

        def closed(_outcome: ZooKeeperResponse | KeeperError) -> None:
            self._stop()
            on_closed()

        self.send(CloseSessionRequest(), closed)

    # -- the connection --------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect to the next server of the list, and ask it for the session."""
        self._timer = None
        server = self._servers[self._next_server % len(self._servers)]
        self._next_server += 1
        # The time limit is `_read_timeout_us` of a client without a connection.
        self._connection = connection = self._host.connect(
            server, ZOOKEEPER, setup_timeout_us=max(1, self._timeout_us // len(self._servers))
        )
        self._last_sent_us = self._last_heard_us = self._host.now_us()
        connection.on_notice(partial(self._noticed, connection))
        connection.on_close(partial(self._connection_ended, connection))
        request = ConnectRequest(
            timeout_ms=self._wanted_timeout_ms,
            session_id=self.session_id,
            last_zxid_seen=self.last_zxid,
        )
        connection.send(
            request,
            timeout_us=2 * self._timeout_us,  # never reached: `_check_silence` closes earlier
            on_response=partial(self._connect_answered, connection),
        )
        self._schedule()

    def _connect_answered(
        self, connection: Connection, answer: AnyResponse | Disconnected | RequestTimedOut
    ) -> None:
        """Take the session that a server grants, then set the watches and send queued requests."""
        if connection is not self._connection or not isinstance(answer, ConnectResponse):
            # After a failure, `_connection_ended` connects again.
            return
        if answer.session_id == NO_SESSION:  # the server does not know the session any more
            self._expire()
            return
        self._last_heard_us = self._host.now_us()
        self.session_id = answer.session_id
        self._timeout_us = answer.timeout_ms * _MS
        # The watches come before the queued requests: the event of a change must arrive before an
        # answer that shows the change (ZK-19).
        if self._data_watches or self._exist_watches or self._child_watches:
            self._send(
                _Packet(
                    SetWatchesRequest(
                        relative_zxid=self.last_zxid,
                        data_watches=tuple(self._data_watches),
                        exist_watches=tuple(self._exist_watches),
                        child_watches=tuple(self._child_watches),
                    ),
                    lambda _outcome: None,
                )
            )
        queued, self._queued = self._queued, []
        for packet in queued:
            self._send(packet)
        # The state changes last, because `on_state` may send a request immediately. That request
        # must not overtake the queued requests.
        self._enter(KeeperState.SYNC_CONNECTED)
        self._schedule()

    def _connection_ended(self, connection: Connection) -> None:
        """Fail all requests, and connect again after a random time."""
        if connection is not self._connection:
            return
        self._connection = None
        self._cancel_timer()
        if not self.is_alive:
            return
        # First the requests fail. `on_state` may then queue new requests, which must not fail.
        self._fail_all(KeeperError.ConnectionLoss)
        # The state stays if only an attempt to connect has failed: the client was not connected
        # before that either.
        if self.is_connected:
            self._enter(KeeperState.DISCONNECTED)
        self._timer = self._host.after(
            self._host.rng.randrange(RECONNECT_MAX_MS) * _MS, self._connect
        )

    def _expire(self) -> None:
        """End the session, because a server has answered that it has expired.

        The state changes before the requests fail. If `on_state` sends a request, this request
        fails too, because the session is over.
        """
        connection, self._connection = self._connection, None
        self._cancel_timer()
        self._enter(KeeperState.EXPIRED)
        self._fail_all(KeeperError.SessionExpired)
        if connection is not None:
            connection.close()

    def _stop(self) -> None:
        """End this handle after `close`."""
        self._is_closed = True
        connection, self._connection = self._connection, None
        self._cancel_timer()
        self._fail_all(KeeperError.SessionExpired)
        if connection is not None:
            connection.close()

    def _enter(self, state: KeeperState) -> None:
        """Set the state, trace it, and report it to the owner."""
        self.state = state
        peer = None if self._connection is None else self._connection.peer
        self._host.trace(client_state(state.value, self.session_id, peer, self.last_zxid))
        self._on_state(state)

    def _fail_all(self, error: KeeperError) -> None:
        """Fail the requests in flight, then the queued ones."""
        packets = [*self._in_flight.values(), *self._queued]
        self._in_flight.clear()
        self._queued.clear()
        for packet in packets:
            packet.on_outcome(error)

    # -- silence and pings -----------------------------------------------------------------------

    def _schedule(self) -> None:
        """Set the timer for the next ping, or for the end of the permitted silence (ZK-13).

        A ping is due if no request was sent for half of the permitted silence.
        """
        self._cancel_timer()
        due_us = self._last_heard_us + self._read_timeout_us
        if self.is_connected:
            due_us = min(due_us, self._last_sent_us + self._read_timeout_us // 2)
        self._timer = self._host.after(max(0, due_us - self._host.now_us()), self._check_silence)

    @property
    def _read_timeout_us(self) -> int:
        """Longest permitted silence of a server.

        It is two thirds of the session timeout once the session is connected. While connecting, it
        is the session timeout divided by the number of servers.
        """
        if self.is_connected:
            return self._timeout_us * 2 // 3
        return max(1, self._timeout_us // len(self._servers))

    def _check_silence(self) -> None:
        """Close the connection of a silent server; send a ping if this client has been silent."""
        self._timer = None
        now_us = self._host.now_us()
        connection = self._connection
        if connection is None:
            return  # never reached: the end of a connection cancels this timer
        if now_us - self._last_heard_us >= self._read_timeout_us:
            connection.close()
            # `close` calls `_connection_ended` once more, a little later. That call does nothing,
            # because the connection is no longer the present one.
            self._connection_ended(connection)
            return
        if self.is_connected and now_us - self._last_sent_us >= self._read_timeout_us // 2:
            self._send(_Packet(PingRequest(), lambda _outcome: None))
        self._schedule()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- requests and answers --------------------------------------------------------------------

    def _send(self, packet: _Packet) -> None:
        """Send a request on the present connection."""
        connection = self._connection
        if connection is None:
            raise SimulationError("a connected session has a connection")
        number = self._next_packet
        self._next_packet += 1
        self._in_flight[number] = packet
        self._last_sent_us = self._host.now_us()
        connection.send(
            packet.request,
            timeout_us=2 * self._timeout_us,  # never reached: `_check_silence` closes earlier
            on_response=partial(self._answered, connection, number),
        )

    def _answered(
        self,
        connection: Connection,
        number: int,
        answer: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        """Process the answer to request `number` of a connection."""
        if connection is not self._connection or isinstance(answer, Disconnected | RequestTimedOut):
            return  # `_connection_ended` fails all requests in flight, in order
        packet = self._in_flight.pop(number)
        self._last_heard_us = self._host.now_us()
        if not isinstance(answer, ZooKeeperResponse):
            raise SimulationError(f"{connection.peer} answered {type(answer).__name__}")
        if isinstance(answer, ConnectResponse):
            raise SimulationError("only a new connection is answered ConnectResponse")
        self.last_zxid = Zxid(max(self.last_zxid, answer.zxid))
        if answer.error_code in (KeeperError.SessionExpired, KeeperError.SessionMoved):
            # The server closes the connection. Only the answer to the next ConnectRequest shows
            # whether the session is over. So this request is put back into `_in_flight`, and fails
            # with ConnectionLoss, like all other requests in flight.
            self._in_flight[number] = packet
            connection.close()
            self._connection_ended(connection)
            return
        self._note_watch(packet.request, answer.error_code)
        packet.on_outcome(answer)

    def _note_watch(self, request: ZooKeeperRequest, error: KeeperError) -> None:
        """Remember a watch that the server has set, so that the next connection sets it again."""
        match request:
            case ExistsRequest(path=path, watch=True):
                # Only `exists` leaves a watch on a missing znode, which waits for its creation.
                if error is KeeperError.NONE:
                    self._data_watches[path] = None
                else:
                    self._exist_watches[path] = None
            case GetDataRequest(path=path, watch=True) if error is KeeperError.NONE:
                self._data_watches[path] = None
            case GetChildrenRequest(path=path, watch=True) if error is KeeperError.NONE:
                self._child_watches[path] = None
            case _:
                pass

    def _noticed(self, connection: Connection, notice: AnyNotice) -> None:
        """Remove the watches that have fired, and report the event."""
        if connection is not self._connection:
            return
        self._last_heard_us = self._host.now_us()
        if not isinstance(notice, WatcherEvent):
            raise SimulationError(
                f"expected a WatcherEvent from {connection.peer}, got {type(notice).__name__}"
            )
        # For each type of event, the tables with the watches that it fires.
        tables = {
            WatchType.NODE_CREATED: (self._data_watches, self._exist_watches),
            WatchType.NODE_DATA_CHANGED: (self._data_watches, self._exist_watches),
            WatchType.NODE_CHILDREN_CHANGED: (self._child_watches,),
            WatchType.NODE_DELETED: (
                self._data_watches,
                self._exist_watches,
                self._child_watches,
            ),
        }
        for table in tables[notice.event_type]:
            table.pop(notice.path, None)
        self._host.trace(event_received(connection.peer, notice, self.last_zxid))
        self._on_event(notice)
