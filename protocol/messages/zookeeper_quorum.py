"""Messages between ZooKeeper servers: transactions, and how a learner follows its leader.

A learner opens one connection to its leader: it names its epoch, takes the leader's history, and
then gets every proposal and commit as a notice, in order. Votes travel on connections of their own.
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
    """A znode comes into being; ephemeral ones belong to the transaction's session."""

    path: str
    data: str
    ephemeral: bool


class DeleteTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A znode goes."""

    path: str


class SetDataTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A znode gets other data."""

    path: str
    data: str


class CreateSessionTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A session begins; its id is the transaction's zxid."""

    timeout_ms: int


class CloseSessionTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A session ends, and all its ephemerals in the same step (ZK-12)."""


class ErrorTxn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A write was refused: it has its place in the order, and changes nothing."""

    error: KeeperError


TxnBody = CreateTxn | DeleteTxn | SetDataTxn | CreateSessionTxn | CloseSessionTxn | ErrorTxn


class Txn(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One transaction of the ensemble's log.

    Shape: `server_id` and `request_number` name the request that asked for it, at the server that
    took it in; -1 and 0 where the leader itself did.
    """

    zxid: Zxid
    session_id: SessionId
    server_id: ServerId
    request_number: int
    body: TxnBody


class ServerState(StrEnum):
    """What a server does in its ensemble. Source: QuorumPeer.ServerState."""

    LOOKING = "LOOKING"
    FOLLOWING = "FOLLOWING"
    LEADING = "LEADING"


class VoteRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Vote (20000). Asks another server for its state and its vote."""

    server_id: ServerId


class VoteResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A server's state and how new its log is."""

    state: ServerState = ServerState.LOOKING
    current_epoch: int = 0
    last_zxid: Zxid = NO_ZXID


class FollowerInfoRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """FollowerInfo (20011). A learner's first packet: the newest epoch that it has promised."""

    server_id: ServerId
    accepted_epoch: int


class FollowerInfoResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The epoch of this leader, once a majority has come; None: the server does not lead."""

    epoch: int | None = None


class AckEpochRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """AckEpoch (20018). A learner promises the leader's epoch, and says what its own log is.

    Shape: `epoch_ends` has the last zxid of each epoch in the log, in order: two logs are equal up
    to the smaller end of the newest epoch that both have.
    """

    current_epoch: int
    epoch_ends: tuple[Zxid, ...]


class AckEpochResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """What makes a learner's log the leader's: what to cut off, and what to append then.

    Shape: everything behind `keep_zxid` is cut (TRUNC), `txns` follow (DIFF).
    """

    keep_zxid: Zxid = NO_ZXID
    txns: tuple[Txn, ...] = ()


class AckNewLeaderRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """AckNewLeader (20012). A learner has the leader's history on its disk."""


class AckNewLeaderResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A majority has it: the learner may serve, with everything up to `committed_zxid` applied."""

    committed_zxid: Zxid = NO_ZXID


class AckRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Ack (20003). A learner has every proposal up to `zxid` on its disk."""

    zxid: Zxid


class AckResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to an ack."""


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Submit (20001). A write that a client has sent to a follower (REQUEST)."""

    session_id: SessionId
    request_number: int
    body: CreateRequest | DeleteRequest | SetDataRequest | ConnectRequest | CloseSessionRequest


class SubmitResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to a forwarded write: its outcome comes with its transaction."""


class RevalidateRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Revalidate (20006). A client takes its session up on a follower: does the session live?"""

    session_id: SessionId


class RevalidateResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The session's timeout; None if the session has ended."""

    timeout_ms: int | None = None


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Touch (20005). Sessions that a follower has heard of since the last ping (ZK-10)."""

    session_ids: tuple[SessionId, ...]


class TouchResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to touched sessions."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Leader to learner: log this transaction, and acknowledge it."""

    txn: Txn


class CommitPacket(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Leader to learner: everything up to `zxid` is committed."""

    zxid: Zxid


class QuorumPing(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Leader to learner, twice a tick: it lives, and wants the touched sessions."""


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
"""What a leader says to its learners unasked."""
