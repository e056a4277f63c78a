"""Messages between ZooKeeper servers: votes, transactions, and packets of learners and leader.

The servers elect one server as leader, in an epoch of its own. The leader puts all writes in an
order: it proposes each write as a transaction, and commits the transaction when a majority of the
servers has it in their logs. The zxid of a write is its number in this order. A learner is a server
that follows a leader, or begins to follow. The learner opens one connection to the leader:
1. The learner sends the newest epoch that it has accepted (FollowerInfo), and accepts the leader's
   epoch (AckEpoch).
2. The learner gets the transactions that its log lacks, and confirms them (AckNewLeader).
3. The learner gets every proposal and commit as a notice, in order, and acknowledges proposals
   (Ack).
Votes have connections of their own.

A number after the name of a request is its API key, which is larger than all keys of Kafka. Ids in
brackets (ZK-12) name rules in docs/kafka/ZOOKEEPER_CONSUMER.md. `array_like` and `tag` say how this
project's processes send messages to each other: a struct is sent as an array of its fields, often
with the name of the struct in front.

Source: ZooKeeper `Leader`, `Learner`, `LearnerHandler` (packet types), `TxnHeader`.
"""

from enum import StrEnum
from typing import NewType

import msgspec

from protocol.messages.zookeeper import (
    NO_ZXID,
    CloseSessionRequest,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    KeeperError,
    SessionId,
    SetDataRequest,
    Zxid,
)

ServerId = NewType("ServerId", int)
"""ZooKeeper's `myid`: a server's number in its ensemble."""


class CreateTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A znode is created. An ephemeral znode belongs to the transaction's session."""

    path: str
    data: str
    ephemeral: bool


class DeleteTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A znode is deleted."""

    path: str


class SetDataTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A znode gets other data."""

    path: str
    data: str


class CreateSessionTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A session begins. Its id is the transaction's zxid."""

    timeout_ms: int


class CloseSessionTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A session ends. The same step deletes all its ephemeral znodes (ZK-12)."""


class ErrorTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A write was refused: it has its place in the order of transactions, and changes nothing."""

    error: KeeperError


TxnBody = CreateTxn | DeleteTxn | SetDataTxn | CreateSessionTxn | CloseSessionTxn | ErrorTxn


class Txn(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One transaction of the ensemble's log.

    `server_id` is the server that got the client's request, and `request_number` is the number of
    the request at this server. For a transaction of the leader itself, `server_id` is -1 and
    `request_number` is 0.
    """

    zxid: Zxid
    session_id: SessionId
    server_id: ServerId
    request_number: int
    body: TxnBody


class ServerState(StrEnum):
    """State of a server in its ensemble. Source: QuorumPeer.ServerState."""

    LOOKING = "LOOKING"
    FOLLOWING = "FOLLOWING"
    LEADING = "LEADING"


class VoteRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Vote (20000). Requests another server's state and the newest entry of its log."""

    server_id: ServerId


class VoteResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A server's state, and the epoch and last zxid of its log, which decide elections."""

    state: ServerState = ServerState.LOOKING
    current_epoch: int = 0
    last_zxid: Zxid = NO_ZXID


class FollowerInfoRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """FollowerInfo (20011).

    A learner's first packet, with the newest epoch that it has accepted.
    """

    server_id: ServerId
    accepted_epoch: int


class FollowerInfoResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The leader's epoch, once a majority has connected. None if the server does not lead."""

    epoch: int | None = None


class AckEpochRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """AckEpoch (20018). A learner accepts the leader's epoch, and describes its own log.

    `epoch_ends` has the last zxid of each epoch in the learner's log, in order. With this list the
    leader finds out how far the learner's log and its own log are equal. The leader takes the
    newest epoch that both logs have, and looks up where this epoch ends in each log. The logs are
    equal up to the smaller of these two zxids.
    """

    current_epoch: int
    epoch_ends: tuple[Zxid, ...]


class AckEpochResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The changes that make the learner's log equal to the leader's.

    The learner removes the transactions after `keep_zxid` (TRUNC), and appends `txns` (DIFF).
    """

    keep_zxid: Zxid = NO_ZXID
    txns: tuple[Txn, ...] = ()


class AckNewLeaderRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """AckNewLeader (20012). A learner has written the leader's history to its disk."""


class AckNewLeaderResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A majority has the leader's history, up to `committed_zxid`.

    The learner applies these transactions, and may then serve clients.
    """

    committed_zxid: Zxid = NO_ZXID


class AckRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Ack (20003). A learner has written every proposal up to `zxid` to its disk."""

    zxid: Zxid


class AckResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to an ack."""


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Submit (20001). A follower forwards a client's write to the leader (ZooKeeper: REQUEST)."""

    session_id: SessionId
    request_number: int
    body: CreateRequest | DeleteRequest | SetDataRequest | ConnectRequest | CloseSessionRequest


class SubmitResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to a forwarded write. The write's outcome comes later, with its transaction."""


class RevalidateRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Revalidate (20006). A follower to which a client has moved asks if the session is alive."""

    session_id: SessionId


class RevalidateResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The session's timeout. None if the session has ended."""

    timeout_ms: int | None = None


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Touch (20005). The sessions that sent requests to a follower since the last ping (ZK-10)."""

    session_ids: tuple[SessionId, ...]


class TouchResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to a Touch."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Leader to learner: write this transaction to the log, and acknowledge it."""

    txn: Txn


class CommitPacket(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Leader to learner: every transaction up to `zxid` is committed."""

    zxid: Zxid


class QuorumPing(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Leader to learner, twice a tick: the leader is alive, and requests the touched sessions."""


QuorumRequest = (
    VoteRequest
    | FollowerInfoRequest
    | AckEpochRequest
    | AckNewLeaderRequest
    | AckRequest
    | SubmitRequest
    | RevalidateRequest
    | TouchRequest
)
"""Requests of one server to another."""

QuorumResponse = (
    VoteResponse
    | FollowerInfoResponse
    | AckEpochResponse
    | AckNewLeaderResponse
    | AckResponse
    | SubmitResponse
    | RevalidateResponse
    | TouchResponse
)
"""Answers of one server to another."""

QuorumNotice = Proposal | CommitPacket | QuorumPing
"""Messages that a leader sends to its learners without a request."""
