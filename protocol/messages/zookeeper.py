"""Messages between a ZooKeeper server and its clients: requests by path, and watch events.

ZooKeeper keeps a tree of znodes, which have data. Its servers, together called the ensemble, apply
all writes in the same order. The place of a write in this order is its zxid. An ephemeral znode
vanishes when the session of its client ends. A client that has set a watch on a path gets one event
when something has changed at this path.

The structs have the fields of ZooKeeper 3.4. Every answer has the last zxid that its server has
applied. The data of a znode is text here, because consumers store only JSON, thread ids and decimal
offsets.

A number after the name of a request is its API key. This is ZooKeeper's op code plus 10,000, so
that it differs from the API keys of Kafka. Ids in brackets (ZK-08) name rules in
docs/kafka/ZOOKEEPER_CONSUMER.md. `array_like` and `tag` say how this project's processes send
messages to each other: a struct is sent as an array of its fields. A request or an answer has the
name of its struct in front.

Source: ZooKeeper `zookeeper.jute`, `ZooDefs.OpCode`, `KeeperException.Code`, `Watcher.Event`.
"""

from enum import IntEnum, StrEnum
from typing import NewType

import msgspec

Zxid = NewType("Zxid", int)
"""Place of a write in the total order: the leader's epoch in the high 32 bits, then a counter."""
SessionId = NewType("SessionId", int)
"""Id of a session in its ensemble. 0 for a client that has no session yet."""

NO_ZXID = Zxid(0)
NO_SESSION = SessionId(0)
ANY_VERSION = -1
"""A write with this version does not check the version of its znode (ZK-08)."""


class KeeperError(IntEnum):
    """Error of a ZooKeeper answer, named like ZooKeeper's exception."""

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
    """Change at the path of a watch event."""

    NODE_CREATED = "NodeCreated"
    NODE_DELETED = "NodeDeleted"
    NODE_DATA_CHANGED = "NodeDataChanged"
    NODE_CHILDREN_CHANGED = "NodeChildrenChanged"


class Stat(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Status of a znode."""

    czxid: Zxid
    """Zxid of the znode's creation."""
    mzxid: Zxid
    """Zxid of the last change of the znode's data."""
    pzxid: Zxid
    """Zxid of the last change of the znode's list of children."""
    version: int = 0
    """Number of changes of the znode's data."""
    cversion: int = 0
    """Number of changes of the znode's list of children."""
    ephemeral_owner: SessionId = NO_SESSION
    """Session whose end removes the znode. NO_SESSION for a persistent znode."""


class ConnectRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Connect (9990). Opens a session, or continues the session `session_id` at this server."""

    timeout_ms: int
    session_id: SessionId = NO_SESSION
    last_zxid_seen: Zxid = NO_ZXID


class ConnectResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """The session and its negotiated timeout. NO_SESSION if the requested session has ended."""

    session_id: SessionId = NO_SESSION
    timeout_ms: int = 0
    error_code: KeeperError = KeeperError.NONE


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Create (10001). Creates a znode, which is removed with the session if it is `ephemeral`."""

    path: str
    data: str = ""
    ephemeral: bool = False


class CreateResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to create."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class DeleteRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Delete (10002). Deletes a znode if its version is `version`."""

    path: str
    version: int = ANY_VERSION


class DeleteResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to delete."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class SetDataRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """SetData (10005). Replaces the data of a znode if its version is `version`."""

    path: str
    data: str
    version: int = ANY_VERSION


class SetDataResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to setData. An answer with an error has no stat."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    stat: Stat | None = None


class GetDataRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """GetData (10004). Reads a znode's data. `watch` sets a watch if the znode exists."""

    path: str
    watch: bool = False


class GetDataResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to getData. An answer with an error has no stat."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    data: str = ""
    stat: Stat | None = None


class ExistsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Exists (10003). Asks whether a znode exists. `watch` sets a watch in both cases."""

    path: str
    watch: bool = False


class ExistsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to exists. If there is no znode, the error is NoNode, and there is no stat."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    stat: Stat | None = None


class GetChildrenRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """GetChildren (10008). Lists a znode's children. `watch` sets a watch if the znode exists."""

    path: str
    watch: bool = False


class GetChildrenResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to getChildren: names without their parent's path, sorted."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE
    children: tuple[str, ...] = ()


class SetWatchesRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """SetWatches (10101). Sets a client's watches again, at the server to which it reconnected.

    A watch whose path has changed since `relative_zxid` fires immediately.

    `data_watches` are the paths that getData watched, and `child_watches` are the paths that
    getChildren watched. `exist_watches` are the paths at which the request exists found no znode.
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
    """Ping (10011). Keeps the session open."""


class PingResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ping."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class CloseSessionRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """CloseSession (9989). Ends the session immediately, and removes its ephemeral znodes."""


class CloseSessionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to closeSession."""

    zxid: Zxid = NO_ZXID
    error_code: KeeperError = KeeperError.NONE


class WatcherEvent(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A watch that fired: its path and the kind of change, without the new data (ZK-18)."""

    event_type: WatchType
    path: str


ZooKeeperWrite = (
    CreateRequest | DeleteRequest | SetDataRequest | ConnectRequest | CloseSessionRequest
)
"""Requests that become transactions. A ConnectRequest becomes one only if it opens a session."""

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
