"""Requests of one server's clients: sessions on their connections, reads, watches, writes.

A read is answered from the server's own database. A write is passed to the leader, which makes a
transaction (txn) of the write. The transaction has the number of the server that got the write, and
a request number. When this server applies the transaction, the server finds the client that waits
for the answer by the request number.

The requests of a session are answered in order (ZK-04), because the host delivers the next request
of a connection only after the answer to the last request. Everything that must be done goes into
`result`: replies, the events of watches, and HangUp, which closes a connection. Ids such as ZK-04
are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: ZooKeeper `ZooKeeperServer`, `FinalRequestProcessor`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.database import ZooKeeperDatabase
from cluster.zookeeper.ensemble import Ensemble
from cluster.zookeeper.follower import Following
from cluster.zookeeper.leader import Leading
from cluster.zookeeper.outputs import HangUp, Notify, ServerResult
from cluster.zookeeper.traces import watch_fired
from cluster.zookeeper.watches import Fired, WatchTable
from cluster.zookeeper.znodes import Change
from protocol.effects import Reply
from protocol.ids import RequestId
from protocol.messages.zookeeper import (
    NO_SESSION,
    CloseSessionRequest,
    CloseSessionResponse,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DeleteResponse,
    ExistsRequest,
    ExistsResponse,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    KeeperError,
    PingRequest,
    PingResponse,
    SessionId,
    SetDataRequest,
    SetDataResponse,
    SetWatchesRequest,
    SetWatchesResponse,
    ZooKeeperRequest,
    ZooKeeperResponse,
    ZooKeeperWrite,
)
from protocol.messages.zookeeper_quorum import CloseSessionTxn, ErrorTxn, Txn

Role = Leading | Following
"""The role of a server that serves clients: it leads, or follows a leader."""

_ENDS_CONNECTION = frozenset({KeeperError.SessionExpired, KeeperError.SessionMoved})
"""Errors after which the server closes the connection, because its session has ended or has moved
to another connection."""


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    """A write that waits until this server has applied its transaction."""

    request_id: RequestId
    connection: AcceptedConnection
    request: ZooKeeperWrite


class ClientRequests:
    """The clients of one server. A session is on at most one connection."""

    def __init__(
        self, ensemble: Ensemble, database: ZooKeeperDatabase, first_request_number: int
    ) -> None:
        self.watches = WatchTable()
        self._ensemble = ensemble
        self._database = database
        self._next_request_number = first_request_number
        self._sessions: dict[AcceptedConnection, SessionId] = {}
        self._connections: dict[SessionId, AcceptedConnection] = {}
        self._pending: dict[int, _PendingWrite] = {}
        """Writes whose transaction is not applied yet, by their request numbers."""
        self._revalidating: dict[SessionId, tuple[RequestId, AcceptedConnection]] = {}
        """Sessions that clients want to continue here, until the leader confirms them.

        The values are the ids and the connections of the clients' requests."""

    @property
    def sessions(self) -> dict[AcceptedConnection, SessionId]:
        """The session of each connection; read-only, for invariants and tests."""
        return self._sessions

    @property
    def connections(self) -> dict[SessionId, AcceptedConnection]:
        """The connection of each session; read-only, for invariants and tests."""
        return self._connections

    def handle(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: ZooKeeperRequest,
        role: Role,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Process a client's request."""
        if isinstance(request, ConnectRequest):
            self._connect(connection, request_id, request, role, now_us, result)
            return
        session_id = self._sessions.get(connection)
        if session_id is None:
            result.add(HangUp(connection))
            return
        # The client is alive. A leader postpones the deadline of the client's session; a follower
        # reports the session to the leader at the next ping.
        if isinstance(role, Leading):
            role.touch(session_id, now_us)
        else:
            role.touch(session_id)
        match request:
            case CreateRequest() | DeleteRequest() | SetDataRequest() | CloseSessionRequest():
                self._submit(connection, request_id, session_id, request, role, now_us, result)
            case SetWatchesRequest():
                fired = self.watches.restore_watches(connection, request, self._database.tree)
                self._send_events(fired, result)
                response = SetWatchesResponse(zxid=self._database.last_zxid)
                result.add(Reply(request_id=request_id, response=response))
            case PingRequest() | GetDataRequest() | ExistsRequest() | GetChildrenRequest():
                answer = self._read(connection, request)
                result.add(Reply(request_id=request_id, response=answer))

    def connection_ended(self, connection: AcceptedConnection) -> None:
        """Drop a connection, its watches and its pending writes; its session lives on (ZK-09).

        An entry of the connection in `_revalidating` stays until the leader answers. The reply then
        goes to the ended connection, and no client gets it.
        """
        session_id = self._sessions.pop(connection, None)
        if session_id is not None and self._connections.get(session_id) == connection:
            del self._connections[session_id]
        self.watches.forget(connection)
        self._pending = {
            number: pending
            for number, pending in self._pending.items()
            if pending.connection != connection
        }

    def hang_up_all(self, result: ServerResult) -> None:
        """Close every client's connection, because this server has no leader."""
        # Some connections are not in `_sessions` yet, because their clients are just opening or
        # continuing a session.
        waiting = [pending.connection for pending in self._pending.values()]
        waiting += [connection for _request_id, connection in self._revalidating.values()]
        for connection in dict.fromkeys((*self._sessions, *waiting)):
            result.add(HangUp(connection))
            self.connection_ended(connection)
        self._pending.clear()
        self._revalidating.clear()

    def applied(
        self, txn: Txn, changes: Iterable[Change], result: ServerResult, *, answers: bool
    ) -> None:
        """Process an applied transaction.

        1. Send the events of the watches that fire.
        2. Answer the client of this server that waits for the transaction, if there is one.
           (If `answers` is False, the transaction is of an earlier epoch. Then no client waits: the
           servers disconnect their clients when an epoch ends.)
        3. If the transaction closes a session, close the session's connection.

        The events go first, because a client must get an event before any answer that shows the
        change (ZK-19).
        """
        self._send_events(self.watches.fire(changes), result)
        if answers and txn.server_id == self._ensemble.server_id:
            # `pending` is None if the client's connection has ended since. It is also None if this
            # server got the write before its last restart.
            pending = self._pending.pop(txn.request_number, None)
            if pending is not None:
                self._answer_write(pending, txn, result)
        if isinstance(txn.body, CloseSessionTxn):
            connection = self._connections.get(txn.session_id)
            if connection is not None:
                self._close_connection(connection, result)

    def revalidated(
        self, session_id: SessionId, timeout_ms: int | None, result: ServerResult
    ) -> None:
        """Accept or refuse a session that a client wants to continue here.

        The leader's answer decides this: it confirms the session, or says that it has expired.

        `timeout_ms` is the session's timeout; None if the session has expired.
        """
        waiting = self._revalidating.pop(session_id, None)
        if waiting is not None:
            self._take_up(*waiting, session_id, timeout_ms, result)

    # -- sessions --------------------------------------------------------------------------------

    def _connect(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: ConnectRequest,
        role: Role,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Open a session, continue one, or refuse a client that has seen newer transactions."""
        if not self._database.is_as_of(request.last_zxid_seen):
            # This server's database is behind what the client has seen. The client must try
            # another server, or it would read an older state than before (ZK-05).
            result.add(HangUp(connection))
            return
        session_id = request.session_id
        if session_id == NO_SESSION:
            timeout_ms = self._ensemble.negotiated_timeout_ms(request.timeout_ms)
            # A new session is a write: the leader proposes a transaction that creates it. `wanted`,
            # the request to the leader, has the timeout that the servers grant. This may differ
            # from the timeout in the client's own request.
            wanted = ConnectRequest(timeout_ms=timeout_ms)
            self._submit(connection, request_id, NO_SESSION, wanted, role, now_us, result)
        elif isinstance(role, Leading):
            timeout = role.revalidate(session_id, self._ensemble.server_id, now_us)
            self._take_up(request_id, connection, session_id, timeout, result)
        else:
            # The client may have asked for this session on an earlier connection, while the leader
            # has not answered yet. Only the client's newest connection gets the session.
            earlier = self._revalidating.get(session_id)
            if earlier is not None:
                # Nothing has to be dropped: a connection gets watches and writes with its session.
                _request_id, earlier_connection = earlier
                result.add(HangUp(earlier_connection))
            self._revalidating[session_id] = (request_id, connection)
            role.revalidate(session_id, result)

    def _take_up(
        self,
        request_id: RequestId,
        connection: AcceptedConnection,
        session_id: SessionId,
        timeout_ms: int | None,
        result: ServerResult,
    ) -> None:
        """Answer a client that continues a session.

        `timeout_ms` is the session's timeout; None if the session has expired.
        """
        if timeout_ms is None:
            # An answer without a session id says that the session has expired.
            result.add(Reply(request_id=request_id, response=ConnectResponse()))
            result.add(HangUp(connection))
            return
        self._bind(connection, session_id, result)
        response = ConnectResponse(session_id=session_id, timeout_ms=timeout_ms)
        result.add(Reply(request_id=request_id, response=response))

    def _bind(
        self, connection: AcceptedConnection, session_id: SessionId, result: ServerResult
    ) -> None:
        """Assign a session to a connection; close the session's older connection, if it has one."""
        old = self._connections.get(session_id)
        if old is not None and old != connection:
            self._close_connection(old, result)
        self._sessions[connection] = session_id
        self._connections[session_id] = connection

    def _close_connection(self, connection: AcceptedConnection, result: ServerResult) -> None:
        """Close a connection from this side; its watches and waiting writes are dropped."""
        result.add(HangUp(connection))
        self.connection_ended(connection)

    # -- reads -----------------------------------------------------------------------------------

    def _read(
        self,
        connection: AcceptedConnection,
        request: PingRequest | GetDataRequest | ExistsRequest | GetChildrenRequest,
    ) -> ZooKeeperResponse:
        """Answer from the database of this server, which may lag behind the leader's (ZK-03)."""
        tree, zxid = self._database.tree, self._database.last_zxid
        if isinstance(request, PingRequest):
            return PingResponse(zxid=zxid)
        path = request.path
        stat = tree.stat(path)
        match request:
            case ExistsRequest(watch=watch):
                if watch:  # also on a missing znode: the watch fires at its creation
                    self.watches.add_data_watch(connection, path)
                error = KeeperError.NoNode if stat is None else KeeperError.NONE
                return ExistsResponse(zxid=zxid, error_code=error, stat=stat)
            case GetDataRequest(watch=watch):
                if stat is None:
                    return GetDataResponse(zxid=zxid, error_code=KeeperError.NoNode)
                if watch:
                    self.watches.add_data_watch(connection, path)
                return GetDataResponse(zxid=zxid, data=tree.data(path), stat=stat)
            case GetChildrenRequest(watch=watch):
                if stat is None:
                    return GetChildrenResponse(zxid=zxid, error_code=KeeperError.NoNode)
                if watch:
                    self.watches.add_child_watch(connection, path)
                return GetChildrenResponse(zxid=zxid, children=tree.children(path))

    def _send_events(self, fired: Iterable[Fired], result: ServerResult) -> None:
        """Trace each fired watch, and send its event to the client."""
        for connection, event in fired:
            result.add(watch_fired(connection, event, self._database.last_zxid))
            result.add(Notify(connection, event))

    # -- writes ----------------------------------------------------------------------------------

    def _submit(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        session_id: SessionId,
        request: ZooKeeperWrite,
        role: Role,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Send a write to the leader; once it is applied, `_answer_write` answers the client."""
        number = self._next_request_number
        self._next_request_number += 1
        self._pending[number] = _PendingWrite(request_id, connection, request)
        if isinstance(role, Leading):
            server_id = self._ensemble.server_id
            role.submit(session_id, server_id, number, request, now_us, result)
        else:
            role.submit(session_id, number, request, result)

    def _answer_write(self, pending: _PendingWrite, txn: Txn, result: ServerResult) -> None:
        """Answer a write of a client of this server. The write's transaction is applied now."""
        error = txn.body.error if isinstance(txn.body, ErrorTxn) else KeeperError.NONE
        response: ZooKeeperResponse
        match pending.request:
            case ConnectRequest(timeout_ms=timeout_ms):  # a new session is never refused
                self._bind(pending.connection, txn.session_id, result)
                response = ConnectResponse(session_id=txn.session_id, timeout_ms=timeout_ms)
            case CreateRequest():
                response = CreateResponse(zxid=txn.zxid, error_code=error)
            case DeleteRequest():
                response = DeleteResponse(zxid=txn.zxid, error_code=error)
            case SetDataRequest(path=path):
                stat = self._database.tree.stat(path) if error is KeeperError.NONE else None
                response = SetDataResponse(zxid=txn.zxid, error_code=error, stat=stat)
            case CloseSessionRequest():
                response = CloseSessionResponse(zxid=txn.zxid, error_code=error)
        result.add(Reply(request_id=pending.request_id, response=response))
        if error in _ENDS_CONNECTION:
            self._close_connection(pending.connection, result)
