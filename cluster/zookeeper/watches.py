"""Watches of one server's clients, and the events that a change causes.

A client sets a watch on a path when it reads the path. When this server applies a change of the
path, it sends an event to the client and removes the watch. So a watch fires only once. A second
watch of the same client on the same path changes nothing.

Source: ZooKeeper `WatchManager`, `DataTree`; rules ZK-16 to ZK-20 of
docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Iterable

from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.znodes import Change, ZnodeTree
from protocol.messages.zookeeper import SetWatchesRequest, WatcherEvent, WatchType

_Watchers = dict[str, dict[AcceptedConnection, None]]
"""The connections that watch each path: the keys of the inner dicts. All values are None."""

Fired = tuple[AcceptedConnection, WatcherEvent]
"""An event, and the connection that it goes to."""


class WatchTable:
    """Data watches (set by exists and getData) and child watches (getChildren) of clients."""

    def __init__(self) -> None:
        self._data: _Watchers = {}
        self._children: _Watchers = {}

    def __len__(self) -> int:
        return sum(
            len(watchers) for table in (self._data, self._children) for watchers in table.values()
        )

    def add_data_watch(self, connection: AcceptedConnection, path: str) -> None:
        """Watch a path for its creation, its data and its deletion."""
        self._data.setdefault(path, {})[connection] = None

    def add_child_watch(self, connection: AcceptedConnection, path: str) -> None:
        """Watch a path for its child list and its deletion."""
        self._children.setdefault(path, {})[connection] = None

    def fire(self, changes: Iterable[Change]) -> list[Fired]:
        """Remove the watches that `changes` fire, and return their events."""
        fired: list[Fired] = []
        for change in changes:
            match change.type:
                case WatchType.NODE_CREATED | WatchType.NODE_DATA_CHANGED:
                    watchers = self._data.pop(change.path, {})
                case WatchType.NODE_DELETED:
                    # A connection with both kinds of watches gets only one event.
                    watchers = self._data.pop(change.path, {}) | self._children.pop(change.path, {})
                case WatchType.NODE_CHILDREN_CHANGED:
                    watchers = self._children.pop(change.path, {})
            event = WatcherEvent(event_type=change.type, path=change.path)
            fired += [(connection, event) for connection in watchers]
        return fired

    def forget(self, connection: AcceptedConnection) -> None:
        """Remove the watches of a connection that has ended."""
        for table in (self._data, self._children):
            # The paths are copied to a list, because the loop deletes keys of `table`.
            for path in [path for path, watchers in table.items() if connection in watchers]:
                del table[path][connection]
                if not table[path]:
                    del table[path]

    def restore_watches(
        self, connection: AcceptedConnection, request: SetWatchesRequest, tree: ZnodeTree
    ) -> list[Fired]:
        """Add the watches of a client's previous connection; return the events that it missed.

        `request.relative_zxid` is the newest zxid that the client has seen. If the path of a watch
        has changed since then, the watch is not added, and its event is returned instead (ZK-20).
        A znode's `mzxid` is the zxid of the last change of its data, and its `pzxid` is the zxid of
        the last change of its list of children.

        Source: DataTree.setWatches.
        """
        events: list[WatcherEvent] = []
        since = request.relative_zxid
        for path in request.data_watches:
            stat = tree.stat(path)
            if stat is None:
                events.append(WatcherEvent(event_type=WatchType.NODE_DELETED, path=path))
            elif stat.mzxid > since:
                events.append(WatcherEvent(event_type=WatchType.NODE_DATA_CHANGED, path=path))
            else:
                self.add_data_watch(connection, path)
        for path in request.exist_watches:  # set on paths without a znode
            if path in tree:
                events.append(WatcherEvent(event_type=WatchType.NODE_CREATED, path=path))
            else:
                self.add_data_watch(connection, path)
        for path in request.child_watches:
            stat = tree.stat(path)
            if stat is None:
                events.append(WatcherEvent(event_type=WatchType.NODE_DELETED, path=path))
            elif stat.pzxid > since:
                events.append(WatcherEvent(event_type=WatchType.NODE_CHILDREN_CHANGED, path=path))
            else:
                self.add_child_watch(connection, path)
        return [(connection, event) for event in events]
