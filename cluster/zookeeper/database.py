"""A server's database: the tree of znodes and the open sessions.

Servers that have applied the same transactions have equal databases. Every server has a database
with the committed transactions. The leader has a second database, to which it applies each
transaction as soon as it proposes the transaction. New writes are checked against this second
database.

- `prepare` runs on the leader. It checks a write and returns the write's transaction. If the write
  is refused, the transaction is an ErrorTxn.
- `apply` runs on every server. It carries out a transaction without checks.

Source: ZooKeeper `ZKDatabase`, `PrepRequestProcessor`; rules ZK-02, ZK-05 and ZK-12 of
docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Iterable

from cluster.zookeeper.znodes import ROOT, Change, ZnodeTree
from protocol.errors import SimulationError
from protocol.messages.zookeeper import (
    ANY_VERSION,
    NO_SESSION,
    NO_ZXID,
    CloseSessionRequest,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    KeeperError,
    SessionId,
    SetDataRequest,
    ZooKeeperWrite,
    Zxid,
)
from protocol.messages.zookeeper_quorum import (
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    SetDataTxn,
    Txn,
    TxnBody,
)


class ZooKeeperDatabase:
    """The tree and the sessions after the transaction `last_zxid`.

    Every ephemeral znode belongs to an open session (ZK-12).
    """

    def __init__(self, initial: Iterable[tuple[str, str]] = ()) -> None:
        """Begin with the persistent znodes `initial` (path, data) and without sessions."""
        self.tree = ZnodeTree(initial)
        self.sessions: dict[SessionId, int] = {}
        """The timeout of each open session, in milliseconds."""
        self.last_zxid = NO_ZXID

    def apply(self, txn: Txn) -> tuple[Change, ...]:
        """Apply the next transaction; return the changes on which watches may fire, in order.

        Raises: SimulationError if the transaction is not newer than `last_zxid`.
        """
        if txn.zxid <= self.last_zxid:
            raise SimulationError(f"applied {txn.zxid:#x} after {self.last_zxid:#x}")
        self.last_zxid = txn.zxid
        match txn.body:
            case CreateTxn(path=path, data=data, ephemeral=ephemeral):
                owner = txn.session_id if ephemeral else NO_SESSION
                return self.tree.create(path, data, owner, txn.zxid)
            case DeleteTxn(path=path):
                return self.tree.delete(path, txn.zxid)
            case SetDataTxn(path=path, data=data):
                return self.tree.set_data(path, data, txn.zxid)
            case CreateSessionTxn(timeout_ms=timeout_ms):
                self.sessions[txn.session_id] = timeout_ms
                return ()
            case CloseSessionTxn():
                self.sessions.pop(txn.session_id, None)
                return self.tree.end_session(txn.session_id, txn.zxid)
            case ErrorTxn():
                # A refused write changes nothing. It is a transaction nevertheless, so that all
                # writes are answered in one order.
                return ()

    def prepare(self, session_id: SessionId, request: ZooKeeperWrite) -> TxnBody:
        """Return the transaction for `request`, which is an ErrorTxn if the request is refused.

        Changes nothing.
        """
        match request:
            # The client asks for a new session. This is the only write that needs no session.
            case ConnectRequest(timeout_ms=timeout_ms):
                return CreateSessionTxn(timeout_ms=timeout_ms)
            case _ if session_id not in self.sessions:  # all other writes need a session
                return ErrorTxn(error=KeeperError.SessionExpired)
            case CloseSessionRequest():
                return CloseSessionTxn()
            case CreateRequest(path=path, data=data, ephemeral=ephemeral):
                error = self.tree.refusal(path)
                if error is not KeeperError.NONE:
                    return ErrorTxn(error=error)
                return CreateTxn(path=path, data=data, ephemeral=ephemeral)
            case DeleteRequest(path=path, version=version):
                error = self._refusal_of_change(path, version)
                if error is KeeperError.NONE and self.tree.children(path):
                    error = KeeperError.NotEmpty
                return DeleteTxn(path=path) if error is KeeperError.NONE else ErrorTxn(error=error)
            case SetDataRequest(path=path, data=data, version=version):
                error = self._refusal_of_change(path, version)
                if error is not KeeperError.NONE:
                    return ErrorTxn(error=error)
                return SetDataTxn(path=path, data=data)

    def _refusal_of_change(self, path: str, version: int) -> KeeperError:
        """Return the error of a request that deletes or changes `path`; NONE if it is legal."""
        if path == ROOT:
            return KeeperError.BadArguments
        stat = self.tree.stat(path)
        if stat is None:
            return KeeperError.NoNode
        # A client that passes ANY_VERSION acts on whatever is there (ZK-08).
        if version not in (ANY_VERSION, stat.version):
            return KeeperError.BadVersion
        return KeeperError.NONE

    def apply_all(self, txns: Iterable[Txn]) -> None:
        """Apply transactions without returning their changes."""
        for txn in txns:
            self.apply(txn)

    def is_as_of(self, zxid: Zxid) -> bool:
        """Return True if this database is at least as new as `zxid` (ZK-05).

        A server refuses a client that has seen a newer zxid elsewhere.
        """
        return self.last_zxid >= zxid
