"""The follower's part of a server: it takes over its leader's history, and then every proposal.

Owns how far it has come, and which sessions it has heard of. It lags behind its leader by what its
connection takes: reads of its clients are answered from what it has applied (ZK-03).
Source: ZooKeeper `Learner`, `Follower`.
"""

from cluster.zookeeper.ensemble import Ensemble
from cluster.zookeeper.outputs import AskLeader, ServerResult
from cluster.zookeeper.txn_log import TxnLog
from protocol.effects import SetTimer
from protocol.messages.zookeeper import SessionId, ZooKeeperWrite, Zxid
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
    QuorumNotice,
    QuorumPing,
    QuorumRequest,
    RevalidateRequest,
    ServerId,
    SubmitRequest,
    TouchRequest,
)

FOLLOW_TIMER = "follow"


class Following:
    """A server while it follows `leader`, or tries to."""

    def __init__(
        self, ensemble: Ensemble, log: TxnLog, leader: ServerId, committed_zxid: Zxid, now_us: int
    ) -> None:
        self.leader = leader
        self.epoch = -1
        """Epoch of the leader, -1 until it has said so."""
        self.is_up_to_date = False
        """Whether it may serve."""
        self.has_failed = False
        """Whether it has to look for another leader."""
        self.committed_zxid = committed_zxid
        self._ensemble = ensemble
        self._log = log
        self._began_us = now_us
        self._heard_us = now_us
        self._touched: dict[SessionId, None] = {}

    def begin(self, result: ServerResult) -> None:
        """Ask the leader for its epoch."""
        info = FollowerInfoRequest(
            server_id=self._ensemble.server_id, accepted_epoch=self._log.accepted_epoch
        )
        self._ask(info, result)
        result.add(SetTimer(key=FOLLOW_TIMER, delay_us=self._ensemble.tick_us // 2))

    def info_answered(
        self, response: FollowerInfoResponse, now_us: int, result: ServerResult
    ) -> None:
        """Promise the leader's epoch, unless a newer one was promised, or it does not lead."""
        self._heard_us = now_us
        if response.epoch is None or response.epoch < self._log.accepted_epoch:
            self.has_failed = True
            return
        self.epoch = response.epoch
        self._log.accept_epoch(response.epoch)
        ack = AckEpochRequest(
            current_epoch=self._log.current_epoch, epoch_ends=self._log.epoch_ends()
        )
        self._ask(ack, result)

    def synced(self, response: AckEpochResponse, now_us: int, result: ServerResult) -> None:
        """Make the log the leader's; what is cut off was never committed."""
        self._heard_us = now_us
        self._log.truncate(response.keep_zxid)
        for txn in response.txns:
            self._log.append(txn)
        self._log.enter_epoch(self.epoch)
        self._ask(AckNewLeaderRequest(), result)
        # What the leader counts for commits of its own epoch: the history is acknowledged with it.
        self._ask(AckRequest(zxid=self._log.last_zxid), result)

    def up_to_date(self, response: AckNewLeaderResponse, now_us: int) -> None:
        """Begin to serve."""
        self._heard_us = now_us
        self.is_up_to_date = True
        self.committed_zxid = max(self.committed_zxid, response.committed_zxid)

    def noticed(self, notice: QuorumNotice, now_us: int, result: ServerResult) -> None:
        """Take what the leader says unasked, in order."""
        self._heard_us = now_us
        match notice:
            case Proposal(txn=txn):
                self._log.append(txn)
                self._ask(AckRequest(zxid=txn.zxid), result)
            case CommitPacket(zxid=zxid):
                self.committed_zxid = max(self.committed_zxid, zxid)
            case QuorumPing():
                touched, self._touched = tuple(self._touched), {}
                self._ask(TouchRequest(session_ids=touched), result)

    def submit(
        self,
        session_id: SessionId,
        request_number: int,
        request: ZooKeeperWrite,
        result: ServerResult,
    ) -> None:
        """Forward a client's write."""
        self._ask(
            SubmitRequest(session_id=session_id, request_number=request_number, body=request),
            result,
        )

    def revalidate(self, session_id: SessionId, result: ServerResult) -> None:
        """Ask whether a session that a client takes up here lives."""
        self._ask(RevalidateRequest(session_id=session_id), result)

    def touch(self, session_id: SessionId) -> None:
        """Take that a client was heard of: the leader hears it with the next ping (ZK-10)."""
        self._touched[session_id] = None

    def check_leader(self, now_us: int, result: ServerResult) -> None:
        """See whether the leader is silent."""
        limit_us = (
            self._ensemble.sync_limit_us if self.is_up_to_date else self._ensemble.init_limit_us
        )
        if now_us - self._heard_us > limit_us:
            self.has_failed = True
        else:
            result.add(SetTimer(key=FOLLOW_TIMER, delay_us=self._ensemble.tick_us // 2))

    def _ask(self, request: QuorumRequest, result: ServerResult) -> None:
        result.add(AskLeader(self.leader, request))
