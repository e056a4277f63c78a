"""The leader's role of a ZooKeeper server: it orders all writes, and expires sessions.

The servers that follow a leader are called its learners. A new leader first waits until a majority
of the servers follow it. Then it chooses an epoch, a number that is higher than all epochs before.
A learner that promises this epoch follows no older leader any more. Then the leader sends its
history to each learner. The history is the transactions in the leader's log. When a majority has
the history, the leader begins to serve. All these steps are in `_advance_epoch`.

From then on, each write becomes a transaction with a zxid, which is the epoch and a counter. The
leader sends the transaction to all learners as a proposal. When a majority has the transaction in
the log, it is committed; ServerCore then applies it to the database.

Source: ZooKeeper `Leader`, `LearnerHandler`, `PrepRequestProcessor`; rules ZK-02, ZK-10 and ZK-12
of docs/kafka/ZOOKEEPER_CONSUMER.md.
DEVIATION: a server asks the other servers for their votes. ZooKeeper's servers broadcast their
votes.
DEVIATION: a learner gets the history in one message.
"""

from dataclasses import dataclass

from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.database import ZooKeeperDatabase
from cluster.zookeeper.ensemble import Ensemble
from cluster.zookeeper.outputs import HangUp, Notify, ServerResult
from cluster.zookeeper.sessions import SessionTracker
from cluster.zookeeper.traces import session_expired
from cluster.zookeeper.txn_log import TxnLog, epoch_of, first_zxid
from protocol.effects import Reply, SetTimer
from protocol.ids import RequestId
from protocol.messages.zookeeper import (
    NO_ZXID,
    ConnectRequest,
    KeeperError,
    SessionId,
    ZooKeeperWrite,
    Zxid,
)
from protocol.messages.zookeeper_quorum import (
    AckEpochRequest,
    AckEpochResponse,
    AckNewLeaderRequest,
    AckNewLeaderResponse,
    AckRequest,
    AckResponse,
    CloseSessionTxn,
    CommitPacket,
    CreateSessionTxn,
    ErrorTxn,
    FollowerInfoRequest,
    FollowerInfoResponse,
    Proposal,
    QuorumPing,
    RevalidateRequest,
    RevalidateResponse,
    ServerId,
    SubmitRequest,
    SubmitResponse,
    TouchRequest,
    TouchResponse,
    Txn,
    TxnBody,
)

LEAD_TIMER = "lead"
"""The timer that pings the learners."""
EXPIRY_TIMER = "expire-sessions"
"""The timer that expires sessions."""
BY_THE_LEADER = ServerId(-1)
"""The `server_id` of a transaction that no client has asked for."""

LearnerRequest = (
    FollowerInfoRequest
    | AckEpochRequest
    | AckNewLeaderRequest
    | AckRequest
    | SubmitRequest
    | RevalidateRequest
    | TouchRequest
)
"""Requests of a learner to its leader."""


@dataclass(slots=True)
class _Learner:
    """A server that follows this leader, or is about to."""

    server_id: ServerId
    connection: AcceptedConnection
    accepted_epoch: int
    heard_us: int
    """Time of the learner's last request."""
    parked: RequestId | None = None
    """The learner's unanswered request, which waits until a majority has come to the same step."""
    ack_epoch: AckEpochRequest | None = None
    """None until the learner has promised the leader's epoch."""
    is_synced: bool = False
    """True once the history was sent; from then on the learner gets each proposal."""
    has_history: bool = False
    """True once the learner has acknowledged the history."""
    acked_zxid: Zxid = NO_ZXID
    """Newest transaction that the learner has acknowledged since it was synced."""


class Leading:
    """The role of a server that leads, or tries to become the leader.

    All transactions up to `committed_zxid` are in the logs of a majority.
    """

    def __init__(
        self, ensemble: Ensemble, log: TxnLog, database: ZooKeeperDatabase, now_us: int
    ) -> None:
        """Begin without learners. `database` has the committed transactions; it is only read."""
        self._ensemble = ensemble
        self._log = log
        self._began_us = now_us
        self._learners: dict[AcceptedConnection, _Learner] = {}
        self._projected = ZooKeeperDatabase(ensemble.initial)
        """The database as it will be after all proposals. New writes are checked against it."""
        self._projected.apply_all(log.after(NO_ZXID))  # the whole log
        self._sessions = SessionTracker(ensemble.tick_us)
        self._epoch: int | None = None
        """None until a majority has reported its accepted epochs."""
        self._history_is_newest = False
        """True once a majority has promised the epoch, and no server of this majority has a newer
        history than this server."""
        self._last_zxid = NO_ZXID
        """Zxid of the last proposal. Before the first proposal, it is the zxid that precedes all
        zxids of the epoch."""
        self.is_established = False
        """True once a majority has this leader's history; then the server serves clients."""
        self.has_failed = False
        """True if the server must look for another leader."""
        self.committed_zxid = database.last_zxid

    @property
    def epoch(self) -> int:
        """The epoch of this leader; -1 before it is known."""
        return -1 if self._epoch is None else self._epoch

    @property
    def sessions(self) -> SessionTracker:
        """The deadlines of sessions; read-only, for tests."""
        return self._sessions

    @property
    def projected(self) -> ZooKeeperDatabase:
        """The database after every proposal; read-only, for invariants."""
        return self._projected

    def begin(self, now_us: int, result: ServerResult) -> None:
        """Begin to wait for learners; the only server of an ensemble leads without waiting."""
        result.add(SetTimer(key=LEAD_TIMER, delay_us=self._ensemble.tick_us // 2))
        self._advance_epoch(now_us, result)

    def end(self, result: ServerResult) -> None:
        """Close the connections of all learners."""
        for connection in self._learners:
            result.add(HangUp(connection))
        self._learners.clear()

    # -- learners --------------------------------------------------------------------------------

    def handle(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: LearnerRequest,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Process a learner's request."""
        if isinstance(request, FollowerInfoRequest):
            self._begin_learner(connection, request_id, request, now_us, result)
            return
        learner = self._learners.get(connection)
        if learner is None:
            result.add(HangUp(connection))
            return
        learner.heard_us = now_us
        match request:
            case AckEpochRequest():
                learner.ack_epoch = request
                learner.parked = request_id
                self._advance_epoch(now_us, result)
            case AckNewLeaderRequest():
                learner.has_history = True
                learner.parked = request_id
                self._advance_epoch(now_us, result)
            case AckRequest(zxid=zxid):
                result.add(Reply(request_id=request_id, response=AckResponse()))
                learner.acked_zxid = max(learner.acked_zxid, zxid)
                self._advance_commit(result)
            case SubmitRequest():
                result.add(Reply(request_id=request_id, response=SubmitResponse()))
                self.submit(
                    request.session_id,
                    learner.server_id,
                    request.request_number,
                    request.body,
                    now_us,
                    result,
                )
            case RevalidateRequest(session_id=session_id):
                timeout_ms = self.revalidate(session_id, learner.server_id, now_us)
                result.add(
                    Reply(request_id=request_id, response=RevalidateResponse(timeout_ms=timeout_ms))
                )
            case TouchRequest(session_ids=session_ids):
                result.add(Reply(request_id=request_id, response=TouchResponse()))
                for session_id in session_ids:
                    self._sessions.touch(session_id, now_us)

    def connection_ended(self, connection: AcceptedConnection) -> None:
        """Remove a learner whose connection has ended."""
        self._learners.pop(connection, None)

    def _begin_learner(
        self,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: FollowerInfoRequest,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Add a learner that asks for the epoch; close its older connection, if it has one."""
        for old in [
            learner for learner in self._learners.values() if learner.server_id == request.server_id
        ]:
            # The learner has connected again, before this server saw the old connection end. The
            # loop runs over a new list, because it deletes learners.
            del self._learners[old.connection]
            result.add(HangUp(old.connection))
        self._learners[connection] = _Learner(
            server_id=request.server_id,
            connection=connection,
            accepted_epoch=request.accepted_epoch,
            heard_us=now_us,
            parked=request_id,
        )
        if self._epoch is not None and request.accepted_epoch > self._epoch:
            self.has_failed = True  # the learner has followed a newer leader in the meantime
        self._advance_epoch(now_us, result)

    # -- establishing an epoch -------------------------------------------------------------------

    def _advance_epoch(self, now_us: int, result: ServerResult) -> None:
        """Take every step that a majority allows by now.

        1. A majority has reported its accepted epochs: choose a larger epoch, and send it.
        2. A majority has promised the epoch: if no server of this majority has a newer history,
           enter the epoch, and send each learner the history that it lacks.
        3. A majority has acknowledged the history: it is committed; begin to serve.

        A learner that comes later goes through the same steps without waiting.
        """
        if self.has_failed:
            return
        # After each step, a loop answers the learners' parked requests that waited for this step.
        # Step 1.
        if self._epoch is None:
            if not self._is_majority(len(self._learners)):
                return
            accepted = [learner.accepted_epoch for learner in self._learners.values()]
            self._epoch = max((self._log.accepted_epoch, *accepted)) + 1
            # The epoch must be on the disk before it is sent. Otherwise this server could choose
            # the same epoch again after a restart.
            self._log.accept_epoch(self._epoch)
            self._last_zxid = first_zxid(self._epoch)
        for learner in self._learners.values():
            if learner.ack_epoch is None:
                self._answer_parked(learner, FollowerInfoResponse(epoch=self._epoch), result)
        # Step 2.
        if not self._history_is_newest and not self._take_history():
            return
        for learner in self._learners.values():
            if learner.ack_epoch is not None and not learner.is_synced:
                self._send_history(learner, learner.ack_epoch, result)
        # Step 3.
        if not self.is_established:
            if not self._is_majority(
                sum(learner.has_history for learner in self._learners.values())
            ):
                return
            self._establish(now_us, result)
        for learner in self._learners.values():
            if learner.has_history:
                self._answer_parked(
                    learner, AckNewLeaderResponse(committed_zxid=self.committed_zxid), result
                )

    def _take_history(self) -> bool:
        """Enter the epoch once a majority has promised it; return True if it was entered.

        If one of the servers that promised has a newer history, this leader fails.
        """
        promised = [learner.ack_epoch for learner in self._learners.values() if learner.ack_epoch]
        if not self._is_majority(len(promised)):
            return False
        # A history of a later epoch is newer. In the same epoch, the longer history is newer.
        own_history = (self._log.current_epoch, self._log.last_zxid)
        for ack in promised:
            if (ack.current_epoch, _last_of(ack)) > own_history:
                self.has_failed = True
                return False
        self._history_is_newest = True
        self._log.enter_epoch(self.epoch)
        return True

    def _send_history(self, learner: _Learner, ack: AckEpochRequest, result: ServerResult) -> None:
        """Answer a learner's AckEpochRequest with the transactions that its log lacks."""
        keep_zxid = self._log.common_with(ack.epoch_ends)
        learner.is_synced = True
        learner.acked_zxid = NO_ZXID  # the learner has not acknowledged this history yet
        self._answer_parked(
            learner, AckEpochResponse(keep_zxid=keep_zxid, txns=self._log.after(keep_zxid)), result
        )

    def _establish(self, now_us: int, result: ServerResult) -> None:
        """Begin to serve. The whole history is committed now.

        A new leader does not know when the clients sent their last requests, so each session gets a
        full timeout.
        """
        self.is_established = True
        self.committed_zxid = self._log.last_zxid
        for session_id, timeout_ms in self._projected.sessions.items():
            self._sessions.add(session_id, timeout_ms * 1_000, now_us)
        self._set_expiry_timer(now_us, result)

    def _answer_parked(
        self,
        learner: _Learner,
        response: FollowerInfoResponse | AckEpochResponse | AckNewLeaderResponse,
        result: ServerResult,
    ) -> None:
        """Answer the learner's parked request; do nothing if no request is parked."""
        if learner.parked is not None:
            result.add(Reply(request_id=learner.parked, response=response))
            learner.parked = None

    def _is_majority(self, learners: int) -> bool:
        """Return True if this number of learners, plus this server itself, is a majority."""
        return self._ensemble.is_majority(learners + 1)

    # -- writes ----------------------------------------------------------------------------------

    def submit(
        self,
        session_id: SessionId,
        server_id: ServerId,
        request_number: int,
        request: ZooKeeperWrite,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Propose the transaction of `request`, whose client is connected to `server_id`."""
        self._sessions.touch(session_id, now_us)
        # If the client has moved its session to another server, this is a late request that the
        # client sent to its former server.
        if not isinstance(request, ConnectRequest) and self._sessions.has_moved(
            session_id, server_id
        ):
            body: TxnBody = ErrorTxn(error=KeeperError.SessionMoved)
        else:
            body = self._projected.prepare(session_id, request)
        self._propose(session_id, server_id, request_number, body, now_us, result)

    def revalidate(self, session_id: SessionId, server_id: ServerId, now_us: int) -> int | None:
        """Confirm a session that its client continues at `server_id`, and return its timeout.

        The leader records the session's new server. If the session has expired, nothing is
        recorded, and the result is None.
        """
        timeout_ms = self._projected.sessions.get(session_id)
        if timeout_ms is not None:
            self._sessions.touch(session_id, now_us)
            self._sessions.move(session_id, server_id)
        return timeout_ms

    def touch(self, session_id: SessionId, now_us: int) -> None:
        """Postpone the deadline of a session whose client is connected to this server."""
        self._sessions.touch(session_id, now_us)

    def _propose(
        self,
        session_id: SessionId,
        server_id: ServerId,
        request_number: int,
        body: TxnBody,
        now_us: int,
        result: ServerResult,
    ) -> None:
        """Give a transaction a zxid, log it, and send it to each learner that has been synced."""
        zxid = self._last_zxid = Zxid(self._last_zxid + 1)
        if isinstance(body, CreateSessionTxn):
            session_id = SessionId(zxid)  # no other session has this id, because each zxid is new
            self._sessions.add(session_id, body.timeout_ms * 1_000, now_us)
            self._sessions.move(session_id, server_id)
        elif isinstance(body, CloseSessionTxn):
            self._sessions.remove(session_id)
        txn = Txn(
            zxid=zxid,
            session_id=session_id,
            server_id=server_id,
            request_number=request_number,
            body=body,
        )
        self._log.append(txn)
        self._projected.apply(txn)
        for learner in self._learners.values():
            if learner.is_synced:
                result.add(Notify(learner.connection, Proposal(txn=txn)))
        self._advance_commit(result)

    def _advance_commit(self, result: ServerResult) -> None:
        """Commit the transactions that are in the logs of a majority."""
        if not self.is_established:
            return
        # The last zxid in each log, the leader's own log included, the newest first. With three
        # servers, two logs have everything up to the second entry of this list.
        acked = [learner.acked_zxid for learner in self._learners.values()] + [self._log.last_zxid]
        acked.sort(reverse=True)
        majority = len(self._ensemble.servers) // 2 + 1
        if len(acked) < majority:
            return
        zxid = acked[majority - 1]
        # It is not enough that a majority has a transaction of an earlier epoch: a leader with a
        # newer history could still replace this transaction. It is committed together with the
        # first transaction of this epoch.
        if zxid > self.committed_zxid and epoch_of(zxid) == self._epoch:
            self.committed_zxid = zxid
            for learner in self._learners.values():
                if learner.is_synced:
                    result.add(Notify(learner.connection, CommitPacket(zxid=zxid)))

    # -- time ------------------------------------------------------------------------------------

    def ping_learners(self, now_us: int, result: ServerResult) -> None:
        """Ping every learner, disconnect silent learners, and fail if no majority is left."""
        ensemble = self._ensemble
        # There are two pings in each tick.
        result.add(SetTimer(key=LEAD_TIMER, delay_us=ensemble.tick_us // 2))
        # The loop runs over a copy, because it deletes learners.
        for connection, learner in list(self._learners.items()):
            if now_us - learner.heard_us > ensemble.sync_limit_us:
                del self._learners[connection]
                result.add(HangUp(connection))
            elif learner.is_synced:
                result.add(Notify(connection, QuorumPing()))
        if self.is_established:
            following = sum(learner.has_history for learner in self._learners.values())
            self.has_failed = self.has_failed or not self._is_majority(following)
        elif now_us - self._began_us > ensemble.init_limit_us:
            self.has_failed = True

    def expire_sessions(self, now_us: int, result: ServerResult) -> None:
        """Propose the end of each session whose deadline has passed.

        The end of a session is a write, because every server must apply it (ZK-12).
        """
        for session_id in self._sessions.expired(now_us):
            result.add(session_expired(session_id))
            # The request number 0 has no meaning, because no client waits for this write.
            self._propose(session_id, BY_THE_LEADER, 0, CloseSessionTxn(), now_us, result)
        self._set_expiry_timer(now_us, result)

    def _set_expiry_timer(self, now_us: int, result: ServerResult) -> None:
        """Set the timer for the next whole tick, because all deadlines are at whole ticks."""
        tick_us = self._ensemble.tick_us
        result.add(SetTimer(key=EXPIRY_TIMER, delay_us=tick_us - now_us % tick_us))


def _last_of(ack: AckEpochRequest) -> Zxid:
    """Return the last zxid of a learner's log, which is the end of its last epoch."""
    return ack.epoch_ends[-1] if ack.epoch_ends else NO_ZXID
