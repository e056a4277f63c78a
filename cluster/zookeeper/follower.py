"""The follower's role of a server: it copies its leader's history, and then logs each proposal.

A leader is elected for an *epoch*; each new leader has a higher epoch. The follower sends these
requests to its leader, in this order. The method in brackets handles the answer.

1. FollowerInfoRequest, which `begin` sends, asks for the leader's epoch (`info_answered`).
2. AckEpochRequest promises the epoch. Its answer is the history that this log lacks (`synced`).
3. AckNewLeaderRequest acknowledges the history. Its answer lets this server serve clients
   (`up_to_date`).
4. An AckRequest acknowledges each Proposal. The proposals come as notices (`noticed`).

A server that has promised an epoch follows no older leader any more. If the leader is silent or not
acceptable, `has_failed` becomes True, and the server looks for another leader. The requests to send
and the timers to set are added to `result`.

A follower answers reads from its own database, which may be behind the leader's (ZK-03). Each
request of a client prolongs the client's session. ZooKeeper calls this a touch; the follower
reports touches to the leader. Ids such as ZK-03 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

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
"""The timer that checks whether the leader is silent."""


class Following:
    """The role of a server that follows `leader`, or tries to follow it."""

    def __init__(
        self, ensemble: Ensemble, log: TxnLog, leader: ServerId, committed_zxid: Zxid, now_us: int
    ) -> None:
        self.leader = leader
        self.epoch = -1
        """Epoch of the leader; -1 until its answer to FollowerInfoRequest."""
        self.is_up_to_date = False
        """True once this server may serve clients."""
        self.has_failed = False
        """True if the server must look for another leader."""
        self.committed_zxid = committed_zxid
        """The newest transaction that is known to be committed.

        The server applies this transaction and all before it."""
        self._ensemble = ensemble
        self._log = log
        self._heard_us = now_us
        """Time of the leader's last message; at first, the time at which this role began."""
        self._touched: dict[SessionId, None] = {}
        """The sessions with a request since the leader's last ping, as the keys of the dict."""

    def begin(self, result: ServerResult) -> None:
        """Ask the leader for its epoch."""
        info = FollowerInfoRequest(
            server_id=self._ensemble.server_id, accepted_epoch=self._log.accepted_epoch
        )
        self._ask(info, result)
        # `check_leader` sets this timer again, so the leader's silence is checked twice per tick.
        result.add(SetTimer(key=FOLLOW_TIMER, delay_us=self._ensemble.tick_us // 2))

    def info_answered(
        self, response: FollowerInfoResponse, now_us: int, result: ServerResult
    ) -> None:
        """Promise the leader's epoch.

        Fail if the epoch is None (that server does not lead), or older than an epoch that this
        server has promised before.
        """
        self._heard_us = now_us
        if response.epoch is None or response.epoch < self._log.accepted_epoch:
            self.has_failed = True
            return
        self.epoch = response.epoch
        # The promise must survive a restart, so it is on the disk before it is sent.
        self._log.accept_epoch(response.epoch)
        ack = AckEpochRequest(
            current_epoch=self._log.current_epoch, epoch_ends=self._log.epoch_ends()
        )
        self._ask(ack, result)

    def synced(self, response: AckEpochResponse, now_us: int, result: ServerResult) -> None:
        """Make this log equal to the leader's.

        Transactions after `keep_zxid` are removed. They were never committed, for this reason:
        1. A committed transaction is in the logs of a majority.
        2. A majority has promised the leader's epoch, and no server of this majority has a newer
           history than the leader.
        3. The two majorities share a server, so the leader has every committed transaction.
        """
        self._heard_us = now_us
        self._log.truncate(response.keep_zxid)
        for txn in response.txns:
            self._log.append(txn)
        # The epoch comes after the history, because a log with a later epoch counts as newer, even
        # if it is shorter. In the other order this could happen:
        # 1. This server dies before it has written the whole history.
        # 2. In the next election its incomplete log counts as the newest.
        # 3. The server leads, and removes committed transactions from the other logs.
        self._log.enter_epoch(self.epoch)
        self._ask(AckNewLeaderRequest(), result)
        # The leader learns from this request where this log ends.
        self._ask(AckRequest(zxid=self._log.last_zxid), result)

    def up_to_date(self, response: AckNewLeaderResponse, now_us: int) -> None:
        """Begin to serve clients."""
        self._heard_us = now_us
        self.is_up_to_date = True
        self.committed_zxid = max(self.committed_zxid, response.committed_zxid)

    def noticed(self, notice: QuorumNotice, now_us: int, result: ServerResult) -> None:
        """Process a notice of the leader: a proposal, a commit or a ping."""
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
        """Forward a client's write to the leader."""
        self._ask(
            SubmitRequest(session_id=session_id, request_number=request_number, body=request),
            result,
        )

    def revalidate(self, session_id: SessionId, result: ServerResult) -> None:
        """Ask the leader whether a session that a client continues here is still open."""
        self._ask(RevalidateRequest(session_id=session_id), result)

    def touch(self, session_id: SessionId) -> None:
        """Note that a session's client is active; the next TouchRequest reports it (ZK-10)."""
        self._touched[session_id] = None

    def check_leader(self, now_us: int, result: ServerResult) -> None:
        """Fail if the leader has been silent for too long."""
        limit_us = (
            self._ensemble.sync_limit_us if self.is_up_to_date else self._ensemble.init_limit_us
        )
        if now_us - self._heard_us > limit_us:
            self.has_failed = True
        else:
            result.add(SetTimer(key=FOLLOW_TIMER, delay_us=self._ensemble.tick_us // 2))

    def _ask(self, request: QuorumRequest, result: ServerResult) -> None:
        """Send a request to the leader."""
        result.add(AskLeader(self.leader, request))
