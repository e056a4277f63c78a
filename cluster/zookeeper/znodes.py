"""The tree of znodes of one server, and the changes that transactions make to it.

A znode is a node of ZooKeeper's tree; it has data and children. An ephemeral znode belongs to a
session (its owner), and is deleted when the session ends. Other znodes are persistent, and their
owner is NO_SESSION. Each method that changes the tree gets the number of the transaction (zxid),
and returns the changes, for which `watches` finds the clients that get an event.

Source: ZooKeeper `DataTree`; rules ZK-01, ZK-08 and ZK-12 of
docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from protocol.messages.zookeeper import (
    NO_SESSION,
    NO_ZXID,
    KeeperError,
    SessionId,
    Stat,
    WatchType,
    Zxid,
)

ROOT = "/"


@dataclass(frozen=True, slots=True)
class Change:
    """Something has changed at `path`. `type` is the type of the event for clients."""

    type: WatchType
    path: str


@dataclass(slots=True)
class _Znode:
    """A znode, with the fields of ZooKeeper's Stat.

    `czxid` is the transaction that created the znode. `mzxid` is the last transaction that changed
    the znode's data, and `version` counts these changes. `pzxid` is the last transaction that
    changed the list of children, and `cversion` counts these changes. The keys of `children` are
    the names of the children.
    """

    data: str
    czxid: Zxid
    mzxid: Zxid
    pzxid: Zxid
    version: int = 0
    cversion: int = 0
    ephemeral_owner: SessionId = NO_SESSION
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        """Return what clients get about a znode besides its data."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            version=self.version,
            cversion=self.cversion,
            ephemeral_owner=self.ephemeral_owner,
        )


class ZnodeTree:
    """All znodes of one server.

    Every znode but the root has a parent. The parent has the znode in its list of children, and is
    not ephemeral.
    """

    def __init__(self, initial: Iterable[tuple[str, str]] = ()) -> None:
        """Begin with the root and the persistent znodes `initial` (path, data), parents first."""
        # At first the root has no data, and no transaction has changed it.
        self._znodes = {ROOT: _Znode("", NO_ZXID, NO_ZXID, NO_ZXID)}
        # Session -> the paths of its ephemeral znodes, as the keys of the inner dict.
        self._ephemerals: dict[SessionId, dict[str, None]] = {}
        for path, data in initial:
            self.create(path, data, NO_SESSION, NO_ZXID)

    def __contains__(self, path: str) -> bool:
        return path in self._znodes

    def paths(self) -> tuple[str, ...]:
        """Return every path, in the order of creation."""
        return tuple(self._znodes)

    def entries(self) -> Iterator[tuple[str, SessionId, Collection[str]]]:
        """Yield every path with its ephemeral owner and the names of its children, unsorted."""
        for path, znode in self._znodes.items():
            yield path, znode.ephemeral_owner, znode.children

    def data(self, path: str) -> str:
        """Return a znode's data. Raises: KeyError if there is no znode."""
        return self._znodes[path].data

    def stat(self, path: str) -> Stat | None:
        """Return a znode's Stat (zxids, versions, owner); None if there is no znode."""
        znode = self._znodes.get(path)
        return None if znode is None else znode.stat()

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of a znode's children, sorted. Raises: KeyError if there is no znode."""
        return tuple(sorted(self._znodes[path].children))

    def ephemerals(self, session_id: SessionId) -> tuple[str, ...]:
        """Return the paths of a session's ephemerals, in the order of creation."""
        return tuple(self._ephemerals.get(session_id, ()))

    def owners(self) -> tuple[SessionId, ...]:
        """Return the sessions that own an ephemeral znode."""
        return tuple(self._ephemerals)

    def refusal(self, path: str) -> KeeperError:
        """Return the error with which a `create` at `path` must be refused; NONE if it is legal."""
        if not is_path(path):
            return KeeperError.BadArguments
        parent = self._znodes.get(parent_of(path))
        if parent is None:
            return KeeperError.NoNode
        if path in self._znodes:
            return KeeperError.NodeExists
        if parent.ephemeral_owner != NO_SESSION:
            return KeeperError.NoChildrenForEphemerals
        return KeeperError.NONE

    # -- changes: the caller has checked that they are legal (ZooKeeperDatabase.prepare) ---------

    def create(self, path: str, data: str, owner: SessionId, zxid: Zxid) -> tuple[Change, ...]:
        """Add a znode under an existing parent."""
        parent_path = parent_of(path)
        parent = self._znodes[parent_path]
        # For a new znode, this transaction is `czxid`, `mzxid` and `pzxid`.
        self._znodes[path] = _Znode(data, zxid, zxid, zxid, ephemeral_owner=owner)
        parent.children[name_of(path)] = None
        parent.cversion += 1
        parent.pzxid = zxid
        if owner != NO_SESSION:
            self._ephemerals.setdefault(owner, {})[path] = None
        return (
            Change(WatchType.NODE_CREATED, path),
            Change(WatchType.NODE_CHILDREN_CHANGED, parent_path),
        )

    def delete(self, path: str, zxid: Zxid) -> tuple[Change, ...]:
        """Remove a znode without children. Any client may delete it, not only its owner (ZK-08)."""
        parent_path = parent_of(path)
        parent = self._znodes[parent_path]
        znode = self._znodes.pop(path)
        del parent.children[name_of(path)]
        parent.cversion += 1
        parent.pzxid = zxid
        # None for a persistent znode: NO_SESSION is no key of `_ephemerals`.
        owned = self._ephemerals.get(znode.ephemeral_owner)
        if owned is not None:
            del owned[path]
            if not owned:
                del self._ephemerals[znode.ephemeral_owner]
        return (
            Change(WatchType.NODE_DELETED, path),
            Change(WatchType.NODE_CHILDREN_CHANGED, parent_path),
        )

    def set_data(self, path: str, data: str, zxid: Zxid) -> tuple[Change, ...]:
        """Replace a znode's data."""
        znode = self._znodes[path]
        znode.data = data
        znode.version += 1
        znode.mzxid = zxid
        return (Change(WatchType.NODE_DATA_CHANGED, path),)

    def end_session(self, session_id: SessionId, zxid: Zxid) -> tuple[Change, ...]:
        """Remove all of a session's ephemerals in one step (ZK-12)."""
        # `ephemerals` returns a copy, because `delete` removes the paths from `_ephemerals`.
        return tuple(
            change for path in self.ephemerals(session_id) for change in self.delete(path, zxid)
        )


def is_path(path: str) -> bool:
    """Return True if `path` is absolute, not the root, and has no empty part, as "/a//b" has."""
    return path.startswith("/") and path != ROOT and all(path[1:].split("/"))


def parent_of(path: str) -> str:
    """Return the path of the parent."""
    return path.rpartition("/")[0] or ROOT  # for "/a", the part before the "/" is ""


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]
