"""Messages between a ZooKeeper server and its clients: requests by path, and watch events.

Shapes are those of ZooKeeper 3.4: every answer carries the last zxid that its server has applied.
Data is text: the lab's znodes hold JSON, thread ids and decimal offsets.
Source: ZooKeeper `zookeeper.jute`, `ZooDefs.OpCode`, `KeeperException.Code`, `Watcher.Event`.
"""

from enum import IntEnum, StrEnum
from typing import NewType

import msgspec

Zxid = NewType("Zxid", int)
"""Place of a write in the total order: the leader's epoch in the high 32 bits, then a counter."""
SessionId = NewType("SessionId", int)
"""Names a session in its ensemble; 0 where a client has none yet."""

NO_ZXID = Zxid(0)
NO_SESSION = SessionId(0)
ANY_VERSION = -1
"""A write with this version acts on whatever is there (ZK-08)."""


class KeeperError(IntEnum):
    """Error of a ZooKeeper answer, by the name of its exception."""

    NONE = 0
    ConnectionLoss = -4  # made by the client alone: no server answers it
    BadArguments = -8
    NoNode = -101
    BadVersion = -103
    NoChildrenForEphemerals = -108
    NodeExists = -110
    NotEmpty = -111
    SessionExpired = -112
    SessionMoved = -118


class WatchType(StrEnum):
    """What a watch event says of its path."""

    NODE_CREATED = "NodeCreated"
    NODE_DELETED = "NodeDeleted"
    NODE_DATA_CHANGED = "NodeDataChanged"
    NODE_CHILDREN_CHANGED = "NodeChildrenChanged"


class Stat(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is kept of a znode beside its data."""

    czxid: Zxid
    """Zxid of its creation."""
    mzxid: Zxid
    """Zxid of the last change of its data."""
    pzxid: Zxid
    """Zxid of the last change of its child list."""
    version: int = 0
    """Number of changes of its data."""
    cversion: int = 0
    """Number of changes of its child list."""
    ephemeral_owner: SessionId = NO_SESSION
    """Session whose end removes it; NO_SESSION for a persistent one."""


class ConnectRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Connect (9990). Opens a session (`session_id` NO_SESSION), or takes one up on this server."""

    timeout_ms: int
    session_id: SessionId = NO_SESSION
    last_zxid_seen: Zxid = NO_ZXID


class ConnectResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The session and its negotiated timeout; NO_SESSION: the one named has ended."""

    session_id: SessionId = NO_SESSION
    timeout_ms: int = 0
    error_code: KeeperError = KeeperError.NONE


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Create (10001)."""

    path: str
    data: str = ""
    ephemeral: bool = False


class CreateResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to create."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class DeleteRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Delete (10002)."""

    path: str
    version: int = ANY_VERSION


class DeleteResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to delete."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class SetDataRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """SetData (10005)."""

    path: str
    data: str
    version: int = ANY_VERSION


class SetDataResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to setData; no stat with an error."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    stat: Stat | None = None


class GetDataRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """GetData (10004). A watch is left only if the znode exists."""

    path: str
    watch: bool = False


class GetDataResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to getData; no stat with an error."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    data: str = ""
    stat: Stat | None = None


class ExistsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Exists (10003). A watch is left also where there is no znode."""

    path: str
    watch: bool = False


class ExistsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to exists: NoNode and no stat where there is no znode."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    stat: Stat | None = None


class GetChildrenRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """GetChildren (10008). A watch is left only if the znode exists."""

    path: str
    watch: bool = False


class GetChildrenResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to getChildren: names without their parent's path, sorted."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    children: tuple[str, ...] = ()


class SetWatchesRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """SetWatches (10101). Leaves a client's watches again.

    Those whose path has changed since `relative_zxid` fire at once.

    Shape: paths by the request that left the watch: getData, exists of what was not there,
    getChildren.
    """

    relative_zxid: Zxid
    data_watches: tuple[str, ...] = ()
    exist_watches: tuple[str, ...] = ()
    child_watches: tuple[str, ...] = ()


class SetWatchesResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to setWatches."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class PingRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Ping (10011). keeps the session."""


class PingResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ping."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class CloseSessionRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """CloseSession (9989). ends the session at once, with its ephemerals."""


class CloseSessionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to closeSession."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class WatcherEvent(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A watch that fired: its path and what happened there, not the new data (ZK-18)."""

    event_type: WatchType
    path: str


ZooKeeperWrite = (
    CreateRequest | DeleteRequest | SetDataRequest | ConnectRequest | CloseSessionRequest
)
"""Requests that become transactions; a ConnectRequest only if it opens a session."""

ZooKeeperRequest = (
    ConnectRequest
    | CreateRequest
    | DeleteRequest
    | SetDataRequest
    | GetDataRequest
    | ExistsRequest
    | GetChildrenRequest
    | SetWatchesRequest
    | PingRequest
    | CloseSessionRequest
)
"""Requests of a client."""

ZooKeeperResponse = (
    ConnectResponse
    | CreateResponse
    | DeleteResponse
    | SetDataResponse
    | GetDataResponse
    | ExistsResponse
    | GetChildrenResponse
    | SetWatchesResponse
    | PingResponse
    | CloseSessionResponse
)
"""Answers to a client."""
