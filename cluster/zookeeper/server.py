"""A ZooKeeper server as a pure state machine: one input in, one list of outputs out.

Owns the role (looking, following, leading), the votes, and what is applied; clients are served by
`client_requests` while it has a leader. Hard state is the log of transactions: applying what is
committed is the only thing that changes the database. Source: ZooKeeper `QuorumPeer`.
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
ELECTION_ROUND_US = 200_000
"""How long a server waits for votes before it counts what has come. Source: FastLeaderElection's
finalizeWait (200 ms)."""


class ServerCore:
    """One server of an ensemble.

    `log` is its own: what it already holds is applied once a leader says how much is committed.
    `first_request_number` is above those of all earlier lives.
    """

    def __init__(self, ensemble: Ensemble, log: TxnLog, *, first_request_number: int) -> None:
        self._ensemble = ensemble
        self._log = log
        self.database = ZooKeeperDatabase(ensemble.initial)
        """What is committed and applied, to look at."""
        self._clients = ClientRequests(ensemble, self.database, first_request_number)
        self._role: Leading | Following | None = None
        """None while it looks for a leader."""
        self._has_served = False
        """Whether the present role has served its clients."""
        self._election_round = 0
        self._votes: dict[ServerId, VoteResponse] = {}

    @property
    def state(self) -> ServerState:
        """Whether it looks, follows or leads."""
        match self._role:
            case None:
                return ServerState.LOOKING
            case Leading():
                return ServerState.LEADING
            case Following():
                return ServerState.FOLLOWING

    @property
    def leading(self) -> Leading | None:
        """Its part as the leader, to look at; None while it does not lead."""
        return self._role if isinstance(self._role, Leading) else None

    @property
    def is_serving(self) -> bool:
        """Whether clients are answered."""
        match self._role:
            case None:
                return False
            case Leading(is_established=is_established):
                return is_established
            case Following(is_up_to_date=is_up_to_date):
                return is_up_to_date

    @property
    def clients(self) -> ClientRequests:
        """What its clients have asked for, to look at."""
        return self._clients

    @property
    def log(self) -> TxnLog:
        """Its log, to look at."""
        return self._log

    # -- inputs ----------------------------------------------------------------------------------

    def start(self, now_us: int) -> ServerResult:
        """Begin to look for a leader; alone, lead."""
        result = ServerResult()
        self._look(now_us, result)
        self._advance(now_us, result)
        return result

    def handle(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: AnyRequest,
        now_us: int,
    ) -> ServerResult:
        """Take in a request of a client or of another server. Raises: SimulationError."""
        result = ServerResult()
        match request:
            case VoteRequest():
                result.add(Reply(request_id=request_id, response=self._own_vote()))
            case FollowerInfoRequest() if not isinstance(self._role, Leading):
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
                if self._role is None or not self.is_serving:
                    result.add(HangUp(connection))
                else:
                    self._clients.handle(
                        connection, request_id, request, self._role, now_us, result
                    )
            case _:
                raise SimulationError(f"a ZooKeeper server is asked for {type(request).__name__}")
        self._advance(now_us, result)
        return result

    def connection_ended(self, connection: AcceptedConnection, now_us: int) -> ServerResult:
        """Take the end of a connection that a client or another server had opened."""
        result = ServerResult()
        self._clients.connection_ended(connection)
        if isinstance(self._role, Leading):
            self._role.connection_ended(connection)
        self._advance(now_us, result)
        return result

    def voted(
        self, election_round: int, server: ServerId, vote: VoteResponse, now_us: int
    ) -> ServerResult:
        """Take another server's vote; one of an earlier round says nothing any more."""
        result = ServerResult()
        if self._role is None and election_round == self._election_round:
            self._votes[server] = vote
            if vote.state is ServerState.LEADING:
                self._follow(server, now_us, result)
            elif len(self._votes) == len(self._ensemble.servers):
                self._count_votes(now_us, result)
        self._advance(now_us, result)
        return result

    def leader_answered(
        self, leader: ServerId, request: QuorumRequest, response: AnyResponse, now_us: int
    ) -> ServerResult:
        """Take the leader's answer to a request of this learner."""
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
                    if isinstance(request, RevalidateRequest):
                        self._clients.revalidated(request.session_id, timeout_ms, result)
                case _:
                    pass  # acks, forwarded writes and touched sessions ask for nothing
        self._advance(now_us, result)
        return result

    def leader_noticed(self, leader: ServerId, notice: AnyNotice, now_us: int) -> ServerResult:
        """Take what the leader says unasked."""
        result = ServerResult()
        role = self._role
        if isinstance(role, Following) and role.leader == leader:
            match notice:
                case Proposal() | CommitPacket() | QuorumPing():
                    role.noticed(notice, now_us, result)
                case _:
                    raise SimulationError(f"a leader says {type(notice).__name__}")
        self._advance(now_us, result)
        return result

    def leader_lost(self, leader: ServerId, now_us: int) -> ServerResult:
        """Take the end of the connection to the leader."""
        result = ServerResult()
        if isinstance(self._role, Following) and self._role.leader == leader:
            self._look(now_us, result)
        self._advance(now_us, result)
        return result

    def timer_fired(self, key: str, now_us: int) -> ServerResult:
        """Take that a timer has fired."""
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

    # -- what is committed -----------------------------------------------------------------------

    def _advance(self, now_us: int, result: ServerResult) -> None:
        """Apply what is committed, answer who waits for it, and look if the role has failed."""
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
                is_of_this_epoch = epoch_of(txn.zxid) == role.epoch
                self._clients.applied(txn, changes, result, answers=is_of_this_epoch)
        if role.has_failed:
            self._look(now_us, result)

    # -- election --------------------------------------------------------------------------------

    def _look(self, now_us: int, result: ServerResult) -> None:
        """Look for a leader: no client is served meanwhile."""
        if isinstance(self._role, Leading):
            self._role.end(result)
            result.add(CancelTimer(key=LEAD_TIMER))
            result.add(CancelTimer(key=EXPIRY_TIMER))
        elif isinstance(self._role, Following):
            result.add(LeaveLeader())
            result.add(CancelTimer(key=FOLLOW_TIMER))
        if self._has_served or self._election_round == 0:
            result.add(server_state(ServerState.LOOKING, None))
        self._has_served = False
        self._role = None
        self._clients.hang_up_all(result)
        self._begin_round(now_us, result)

    def _begin_round(self, now_us: int, result: ServerResult) -> None:
        self._election_round += 1
        self._votes = {self._ensemble.server_id: self._own_vote()}
        for server in self._ensemble.peers:
            result.add(AskVote(server, self._election_round))
        result.add(SetTimer(key=LOOK_TIMER, delay_us=ELECTION_ROUND_US))
        if not self._ensemble.peers:
            self._count_votes(now_us, result)

    def _own_vote(self) -> VoteResponse:
        return VoteResponse(
            state=self.state if self.is_serving else ServerState.LOOKING,
            current_epoch=self._log.current_epoch,
            last_zxid=self._log.last_zxid,
        )

    def _count_votes(self, now_us: int, result: ServerResult) -> None:
        """Lead if this server's log is the newest of a majority, or else follow the newest.

        A server that follows votes for nobody: its leader may answer in the next round.
        """
        looking = {
            server: vote
            for server, vote in self._votes.items()
            if vote.state is ServerState.LOOKING
        }
        if not self._ensemble.is_majority(len(looking)):
            self._begin_round(now_us, result)
            return
        newest = max(looking, key=lambda server: (*_newness(looking[server]), server))
        if newest == self._ensemble.server_id:
            result.add(CancelTimer(key=LOOK_TIMER))
            self._role = Leading(self._ensemble, self._log, self.database, now_us)
            self._role.begin(now_us, result)
        else:
            self._follow(newest, now_us, result)

    def _follow(self, leader: ServerId, now_us: int, result: ServerResult) -> None:
        result.add(CancelTimer(key=LOOK_TIMER))
        self._role = Following(self._ensemble, self._log, leader, self.database.last_zxid, now_us)
        self._role.begin(result)


def _newness(vote: VoteResponse) -> tuple[int, int]:
    return (vote.current_epoch, vote.last_zxid)
