"""A ZooKeeper server as a pure state machine: each input returns one list of outputs.

A server at first looks for a leader, in an election with votes. Then it follows the elected leader
(module `follower`), or is the leader itself (module `leader`). In both roles it serves clients
(module `client_requests`).

The leader makes a transaction of each write. A transaction has a number, which is called zxid, and
is written to the logs of all servers. When the transaction is committed, `_advance` applies it to
the database; nothing else changes the database. Only the log is on the disk.

The method for each input, such as a request or a timer, returns a ServerResult: the list of what
the node must do then, for example send a reply or set a timer.

Source: ZooKeeper `QuorumPeer`.
"""

from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.client_requests import ClientRequests
from cluster.zookeeper.database import ZooKeeperDatabase
from cluster.zookeeper.ensemble import Ensemble
from cluster.zookeeper.follower import FOLLOW_TIMER, Following
from cluster.zookeeper.leader import EXPIRY_TIMER, LEAD_TIMER, Leading
from cluster.zookeeper.outputs import AskVote, HangUp, LeaveLeader, ServerResult
from cluster.zookeeper.traces import server_state, txn_applied
from cluster.zookeeper.txn_log import TxnLog, epoch_of
from protocol.api import AnyNotice, AnyRequest, AnyResponse
from protocol.effects import CancelTimer, Reply, SetTimer
from protocol.errors import SimulationError
from protocol.ids import RequestId
from protocol.messages.zookeeper import (
    CloseSessionRequest,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildrenRequest,
    GetDataRequest,
    PingRequest,
    SetDataRequest,
    SetWatchesRequest,
)
from protocol.messages.zookeeper_quorum import (
    AckEpochRequest,
    AckEpochResponse,
    AckNewLeaderRequest,
    AckNewLeaderResponse,
    AckRequest,
    CommitPacket,
    FollowerInfoRequest,
    FollowerInfoResponse,
    Proposal,
    QuorumPing,
    QuorumRequest,
    RevalidateRequest,
    RevalidateResponse,
    ServerId,
    ServerState,
    SubmitRequest,
    TouchRequest,
    VoteRequest,
    VoteResponse,
)

LOOK_TIMER = "look"
"""The timer that ends a round of the election."""
ELECTION_ROUND_US = 200_000
"""A server counts its votes this long after a round of the election has begun.

Source: FastLeaderElection's finalizeWait (200 ms)."""


class ServerCore:
    """One server of an ensemble.

    `log` is the server's own log. A transaction in the log is applied when this server has learnt
    from a leader that the transaction is committed. A server gives a number to each write of its
    clients, beginning with `first_request_number`. This number is higher than all numbers before
    the last restart, so that an old transaction is never taken for the answer to a new request.
    """

    def __init__(self, ensemble: Ensemble, log: TxnLog, *, first_request_number: int) -> None:
        self._ensemble = ensemble
        self._log = log
        self.database = ZooKeeperDatabase(ensemble.initial)
        """The database after the committed transactions; other classes may only read it."""
        self._clients = ClientRequests(ensemble, self.database, first_request_number)
        self._role: Leading | Following | None = None
        """None while the server looks for a leader."""
        self._has_served = False
        """True if the server has served clients in its present role."""
        self._election_round = 0
        """Number of the newest election round; 0 if no round has begun."""
        self._votes: dict[ServerId, VoteResponse] = {}
        """The votes of the present election round, with this server's own vote."""

    @property
    def state(self) -> ServerState:
        """LOOKING, FOLLOWING or LEADING."""
        match self._role:
            case None:
                return ServerState.LOOKING
            case Leading():
                return ServerState.LEADING
            case Following():
                return ServerState.FOLLOWING

    @property
    def leading(self) -> Leading | None:
        """The leader's role, for invariants and tests; None while the server does not lead."""
        return self._role if isinstance(self._role, Leading) else None

    @property
    def is_serving(self) -> bool:
        """True if the server answers clients."""
        match self._role:
            case None:
                return False
            case Leading(is_established=is_established):
                return is_established
            case Following(is_up_to_date=is_up_to_date):
                return is_up_to_date

    @property
    def clients(self) -> ClientRequests:
        """Sessions, watches and pending writes of the clients, for invariants and tests."""
        return self._clients

    @property
    def log(self) -> TxnLog:
        """The server's log; other classes may only read it."""
        return self._log

    # -- inputs ----------------------------------------------------------------------------------

    def start(self, now_us: int) -> ServerResult:
        """Begin to look for a leader. The only server of an ensemble leads immediately."""
        result = ServerResult()
        self._look_for_leader(now_us, result)
        self._advance(now_us, result)
        return result

    def handle(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: AnyRequest,
        now_us: int,
    ) -> ServerResult:
        """Process a request of a client or of another server. Raises: SimulationError."""
        result = ServerResult()
        match request:
            case VoteRequest():
                result.add(Reply(request_id=request_id, response=self._own_vote()))
            case FollowerInfoRequest() if not isinstance(self._role, Leading):
                # An answer without an epoch says that this server does not lead.
                result.add(Reply(request_id=request_id, response=FollowerInfoResponse()))
            case (
                FollowerInfoRequest()
                | AckEpochRequest()
                | AckNewLeaderRequest()
                | AckRequest()
                | SubmitRequest()
                | RevalidateRequest()
                | TouchRequest()
            ):
                if isinstance(self._role, Leading):
                    self._role.handle(connection, request_id, request, now_us, result)
                else:
                    result.add(HangUp(connection))
            case (
                ConnectRequest()
                | CreateRequest()
                | DeleteRequest()
                | SetDataRequest()
                | CloseSessionRequest()
                | GetDataRequest()
                | ExistsRequest()
                | GetChildrenRequest()
                | SetWatchesRequest()
                | PingRequest()
            ):
                # A server that serves has a role; the test for None is only for mypy.
                if self._role is None or not self.is_serving:
                    result.add(HangUp(connection))
                else:
                    self._clients.handle(
                        connection, request_id, request, self._role, now_us, result
                    )
            case _:
                raise SimulationError(
                    f"expected a request for a ZooKeeper server, got {type(request).__name__}"
                )
        self._advance(now_us, result)
        return result

    def connection_ended(self, connection: AcceptedConnection, now_us: int) -> ServerResult:
        """Process the end of a connection that a client or another server had opened."""
        result = ServerResult()
        self._clients.connection_ended(connection)
        if isinstance(self._role, Leading):
            self._role.connection_ended(connection)
        self._advance(now_us, result)
        return result

    def voted(
        self, election_round: int, server: ServerId, vote: VoteResponse, now_us: int
    ) -> ServerResult:
        """Count another server's vote; a vote of an earlier round is ignored."""
        result = ServerResult()
        if self._role is None and election_round == self._election_round:
            self._votes[server] = vote
            if vote.state is ServerState.LEADING:
                self._follow(server, now_us, result)
            elif len(self._votes) == len(self._ensemble.servers):
                # All servers have voted, so the round need not wait for its timer.
                self._count_votes(now_us, result)
        self._advance(now_us, result)
        return result

    def leader_answered(
        self, leader: ServerId, request: QuorumRequest, response: AnyResponse, now_us: int
    ) -> ServerResult:
        """Process the leader's answer to a request of this learner."""
        result = ServerResult()
        role = self._role
        if isinstance(role, Following) and role.leader == leader:
            match response:
                case FollowerInfoResponse():
                    role.info_answered(response, now_us, result)
                case AckEpochResponse():
                    role.synced(response, now_us, result)
                case AckNewLeaderResponse():
                    role.up_to_date(response, now_us)
                case RevalidateResponse(timeout_ms=timeout_ms):
                    # The answer does not name the session; the request does.
                    if isinstance(request, RevalidateRequest):
                        self._clients.revalidated(request.session_id, timeout_ms, result)
                case _:
                    pass  # the answers to AckRequest, SubmitRequest and TouchRequest are empty
        self._advance(now_us, result)
        return result

    def leader_noticed(self, leader: ServerId, notice: AnyNotice, now_us: int) -> ServerResult:
        """Process a notice of the leader."""
        result = ServerResult()
        role = self._role
        if isinstance(role, Following) and role.leader == leader:
            match notice:
                case Proposal() | CommitPacket() | QuorumPing():
                    role.noticed(notice, now_us, result)
                case _:
                    raise SimulationError(
                        f"expected a leader's notice, got {type(notice).__name__}"
                    )
        self._advance(now_us, result)
        return result

    def leader_lost(self, leader: ServerId, now_us: int) -> ServerResult:
        """Look for another leader, because the connection to the present one has ended."""
        result = ServerResult()
        if isinstance(self._role, Following) and self._role.leader == leader:
            self._look_for_leader(now_us, result)
        self._advance(now_us, result)
        return result

    def timer_fired(self, key: str, now_us: int) -> ServerResult:
        """Process a timer that has fired."""
        result = ServerResult()
        role = self._role
        if key == LOOK_TIMER and role is None:
            self._count_votes(now_us, result)
        elif key == FOLLOW_TIMER and isinstance(role, Following):
            role.check_leader(now_us, result)
        elif key == LEAD_TIMER and isinstance(role, Leading):
            role.ping_learners(now_us, result)
        elif key == EXPIRY_TIMER and isinstance(role, Leading):
            role.expire_sessions(now_us, result)
        self._advance(now_us, result)
        return result

    # -- applying committed transactions ---------------------------------------------------------

    def _advance(self, now_us: int, result: ServerResult) -> None:
        """Finish an input: it may have committed transactions, or ended the role.

        Each method that takes an input calls this at its end.

        1. Trace the new role when it begins to serve.
        2. Apply the newly committed transactions in order, and answer the clients that wait for
           them.
        3. If the role has failed, look for another leader.
        """
        role = self._role
        if role is None:
            return
        if self.is_serving and not self._has_served:
            self._has_served = True
            result.add(server_state(self.state, role.epoch))
        if self.is_serving and role.committed_zxid > self.database.last_zxid:
            for txn in self._log.between(self.database.last_zxid, role.committed_zxid):
                changes = self.database.apply(txn)
                result.add(txn_applied(txn))
                # The client of an older transaction was disconnected when the old epoch ended.
                is_of_this_epoch = epoch_of(txn.zxid) == role.epoch
                self._clients.applied(txn, changes, result, answers=is_of_this_epoch)
        if role.has_failed:
            self._look_for_leader(now_us, result)

    # -- election --------------------------------------------------------------------------------

    def _look_for_leader(self, now_us: int, result: ServerResult) -> None:
        """Give up the role, close all clients' connections, and begin an election round."""
        if isinstance(self._role, Leading):
            self._role.end(result)
            result.add(CancelTimer(key=LEAD_TIMER))
            result.add(CancelTimer(key=EXPIRY_TIMER))
        elif isinstance(self._role, Following):
            result.add(LeaveLeader())
            result.add(CancelTimer(key=FOLLOW_TIMER))
        # LOOKING is traced at the start and after a role that served, but not again after each
        # failed attempt to find a leader.
        if self._has_served or self._election_round == 0:
            result.add(server_state(ServerState.LOOKING, None))
        self._has_served = False
        self._role = None
        self._clients.hang_up_all(result)
        self._begin_round(now_us, result)

    def _begin_round(self, now_us: int, result: ServerResult) -> None:
        """Ask all other servers for their votes; a timer ends the round."""
        self._election_round += 1
        self._votes = {self._ensemble.server_id: self._own_vote()}
        for server in self._ensemble.peers:
            result.add(AskVote(server, self._election_round))
        result.add(SetTimer(key=LOOK_TIMER, delay_us=ELECTION_ROUND_US))
        # The only server of an ensemble waits for no vote.
        if not self._ensemble.peers:
            self._count_votes(now_us, result)

    def _own_vote(self) -> VoteResponse:
        """Return this server's vote. A server that does not serve clients votes as LOOKING."""
        return VoteResponse(
            state=self.state if self.is_serving else ServerState.LOOKING,
            current_epoch=self._log.current_epoch,
            last_zxid=self._log.last_zxid,
        )

    def _count_votes(self, now_us: int, result: ServerResult) -> None:
        """Choose the server with the newest log as the leader: lead, or follow that server.

        Only the votes of servers that look for a leader count. If these servers are a majority,
        the newest of their logs has every committed transaction. If they are no majority, the
        remaining servers do not answer, or have a leader already. Then another round begins. As
        soon as the vote of a leader arrives in that round, `voted` ends the search.
        """
        looking = {
            server: vote
            for server, vote in self._votes.items()
            if vote.state is ServerState.LOOKING
        }
        if not self._ensemble.is_majority(len(looking)):
            self._begin_round(now_us, result)
            return
        # If several logs are equally new, the server with the largest id wins. This makes all
        # servers choose the same leader.
        newest = max(looking, key=lambda server: (*_newness(looking[server]), server))
        if newest == self._ensemble.server_id:
            result.add(CancelTimer(key=LOOK_TIMER))
            self._role = Leading(self._ensemble, self._log, self.database, now_us)
            self._role.begin(now_us, result)
        else:
            self._follow(newest, now_us, result)

    def _follow(self, leader: ServerId, now_us: int, result: ServerResult) -> None:
        """Take the role of a follower, and begin to copy the history of `leader`."""
        result.add(CancelTimer(key=LOOK_TIMER))
        self._role = Following(self._ensemble, self._log, leader, self.database.last_zxid, now_us)
        self._role.begin(result)


def _newness(vote: VoteResponse) -> tuple[int, int]:
    """Return a sort key. A later epoch is newer; in the same epoch, a longer history is newer."""
    return (vote.current_epoch, vote.last_zxid)
