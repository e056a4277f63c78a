"""A ZooKeeper server as a node: it runs a ServerCore on a Host.

The core is a state machine without clock and network. Each input (a request, a timer, an answer)
returns a list of outputs, which this module carries out: replies, requests to other servers, timers
and trace rows.
"""

from collections.abc import Callable
from functools import partial

from cluster.host.connection_purposes import ZOOKEEPER_ELECTION, ZOOKEEPER_QUORUM
from cluster.host.host import Connection, Disconnected, Host, RequestTimedOut
from cluster.host.incoming_request import AcceptedConnection, IncomingRequest
from cluster.host.keyed_timers import KeyedTimers
from cluster.runtime import ClusterStatus, ZooKeeperStatus
from cluster.spec import ClusterSpec, ZooKeeperSpec
from cluster.storage.recovery_report import report_recoveries
from cluster.zookeeper.bootstrap import initial_znodes
from cluster.zookeeper.ensemble import Ensemble
from cluster.zookeeper.invariants import check_server
from cluster.zookeeper.outputs import (
    AskLeader,
    AskVote,
    HangUp,
    LeaveLeader,
    Notify,
    Output,
    ServerResult,
)
from cluster.zookeeper.server import ServerCore
from cluster.zookeeper.txn_log import TxnLog
from protocol.api import AnyNotice, AnyResponse
from protocol.effects import CancelTimer, Reply, SetTimer
from protocol.ids import zookeeper_name
from protocol.messages.zookeeper import ZooKeeperRequest, ZooKeeperWrite
from protocol.messages.zookeeper_quorum import QuorumRequest, ServerId, VoteRequest, VoteResponse
from protocol.trace import TraceEvent

_LIFE_BITS = 32
"""A request number has the incarnation of the server in the bits above the lowest 32.

So a restarted server uses no request number again."""


class ZooKeeperNode:
    """One incarnation of a server of the ensemble."""

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ZooKeeperSpec) -> None:
        self._host = host
        self._server_id = ServerId(spec.server_id)
        self._ensemble = Ensemble(
            server_id=self._server_id,
            servers=tuple(ServerId(each.server_id) for each in cluster.zookeepers),
            config=cluster.zookeeper_config,
            initial=initial_znodes(cluster),
        )
        self._core = ServerCore(
            self._ensemble,
            TxnLog(host.storage),
            first_request_number=host.incarnation << _LIFE_BITS,
        )
        self._timers = KeyedTimers(host, self._timer_fired)
        self._leader: tuple[ServerId, Connection] | None = None
        """The leader and the connection to it; None while this server follows no leader."""
        self._costs = cluster.costs
        self._busy_until_us = 0
        """Time at which all clients' requests so far are carried out; used in virtual time."""
        self._electors: dict[ServerId, Connection] = {}
        """Server -> the connection on which this server asks it for its vote."""

    @property
    def core(self) -> ServerCore:
        """The server's state machine; read-only, for tests."""
        return self._core

    def start(self) -> None:
        """Begin to accept connections, and to look for a leader."""
        report_recoveries(self._host)
        self._host.serve(self._handle, on_end=self._connection_ended)
        self._carry_out(self._core.start(self._host.now_us()))

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately; the other servers learn of it by the end of the connections."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Write this server's role, epoch, newest zxid and number of sessions into `status`."""
        core = self._core
        # A server that is looking for a leader still has the epoch of its last leader in its log.
        # So -1 is reported instead.
        status.zookeepers[self._host.name] = ZooKeeperStatus(
            state=core.state.value,
            is_serving=core.is_serving,
            epoch=core.log.current_epoch if core.is_serving else -1,
            zxid=core.database.last_zxid,
            sessions=len(core.database.sessions),
        )

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Check all invariants, whether `thoroughly` or not. Raises: InvariantViolation."""
        del thoroughly  # unused: the parameter is that of all nodes
        check_server(self._core)

    # -- inputs ----------------------------------------------------------------------------------

    def _handle(self, request: IncomingRequest) -> None:
        """Carry out a request.

        In virtual time, requests of clients are carried out one after the other. ClusterSpec.costs
        determines how long each of them takes.
        """
        body = request.envelope.body
        if not self._host.simulates_costs or not isinstance(body, ZooKeeperRequest):
            self._carry_out_request(request)
            return
        cost_us = self._costs.zookeeper_request_us
        if isinstance(body, ZooKeeperWrite):
            cost_us += self._costs.zookeeper_sync_us
        now_us = self._host.now_us()
        self._busy_until_us = max(self._busy_until_us, now_us) + cost_us
        self._host.after(self._busy_until_us - now_us, self._carry_out_request, request)

    def _carry_out_request(self, request: IncomingRequest) -> None:
        self._carry_out(
            self._core.handle(
                request.connection, request.request_id, request.envelope.body, self._host.now_us()
            )
        )

    def _connection_ended(self, connection: AcceptedConnection) -> None:
        self._carry_out(self._core.connection_ended(connection, self._host.now_us()))

    def _timer_fired(self, key: str) -> None:
        self._carry_out(self._core.timer_fired(key, self._host.now_us()))

    def _voted(
        self,
        election_round: int,
        server: ServerId,
        answer: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        """Pass on a vote. A server that does not answer has no vote in this round."""
        if isinstance(answer, VoteResponse):
            self._carry_out(self._core.voted(election_round, server, answer, self._host.now_us()))

    def _leader_answered(
        self,
        connection: Connection,
        leader: ServerId,
        request: QuorumRequest,
        answer: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        """Pass on an answer, unless it comes from a connection to an earlier leader."""
        # A failed request does nothing here, because its failure also ends the connection
        # (`_leader_lost`).
        if self._is_leader(connection) and not isinstance(answer, Disconnected | RequestTimedOut):
            self._carry_out(
                self._core.leader_answered(leader, request, answer, self._host.now_us())
            )

    def _leader_noticed(self, connection: Connection, leader: ServerId, notice: AnyNotice) -> None:
        if self._is_leader(connection):
            self._carry_out(self._core.leader_noticed(leader, notice, self._host.now_us()))

    def _leader_lost(self, connection: Connection, leader: ServerId) -> None:
        if self._is_leader(connection):
            self._leader = None
            self._carry_out(self._core.leader_lost(leader, self._host.now_us()))

    def _is_leader(self, connection: Connection) -> bool:
        """Return True for the present connection to the leader, False for an earlier connection."""
        # `_leader` is the pair (server, connection).
        return self._leader is not None and self._leader[1] is connection

    # -- outputs ---------------------------------------------------------------------------------

    def _carry_out(self, result: ServerResult) -> None:
        for output in result.outputs:
            self._carry_out_one(output)

    def _carry_out_one(self, output: Output) -> None:
        """Carry out one output."""
        host = self._host
        match output:
            case Reply(request_id=request_id, response=response):
                host.reply(request_id, response)
            case Notify(connection=connection, notice=notice):
                host.notify(connection, notice)
            case HangUp(connection=connection):
                host.hang_up(connection)
            case AskLeader(leader=leader, request=request):
                self._ask_leader(leader, request)
            case LeaveLeader():
                leader_connection, self._leader = self._leader, None
                if leader_connection is not None:
                    leader_connection[1].close()
            case AskVote(server=server, election_round=election_round):
                self._ask_vote(server, election_round)
            case SetTimer() | CancelTimer():
                self._timers.apply((output,))
            case TraceEvent():
                host.trace(output)

    def _ask_leader(self, leader: ServerId, request: QuorumRequest) -> None:
        """Send a request to the leader; the first request opens the connection."""
        if self._leader is None:
            connection = self._host.connect(
                zookeeper_name(leader),
                ZOOKEEPER_QUORUM,
                setup_timeout_us=self._ensemble.init_limit_us,
            )
            self._leader = (leader, connection)
            connection.on_notice(partial(self._leader_noticed, connection, leader))
            connection.on_close(partial(self._leader_lost, connection, leader))
        connection = self._leader[1]
        connection.send(
            request,
            timeout_us=self._ensemble.init_limit_us,
            on_response=partial(self._leader_answered, connection, leader, request),
        )

    def _ask_vote(self, server: ServerId, election_round: int) -> None:
        """Ask a server for its vote, on a connection that later rounds use again."""
        connection = self._electors.get(server)
        if connection is None or connection.is_closed:
            connection = self._electors[server] = self._host.connect(
                zookeeper_name(server),
                ZOOKEEPER_ELECTION,
                setup_timeout_us=self._ensemble.tick_us,
            )
        connection.send(
            VoteRequest(server_id=self._server_id),
            timeout_us=self._ensemble.tick_us,
            on_response=partial(self._voted, election_round, server),
        )
