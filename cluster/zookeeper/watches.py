"""Watches on one server: who left which, and who hears of a change.

A watch belongs to a connection and a path, as a set: left twice it counts once. It fires once, when
this server applies the change. Source: ZooKeeper `WatchManager`, `DataTree`; ZK-16 to ZK-20.
"""

from collections.abc import Iterable

from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.znodes import Change, ZnodeTree
from protocol.messages.zookeeper import SetWatchesRequest, WatcherEvent, WatchType

_Watchers = dict[str, dict[AcceptedConnection, None]]

Fired = tuple[AcceptedConnection, WatcherEvent]
"""An event, and the connection that it goes to."""


class WatchTable:
    """Data watches (exists, getData) and child watches (getChildren) of one server's clients.

    Invariant: no path has an empty set of watchers.
    """

    def __init__(self) -> None:
        self._data: _Watchers = {}
        self._children: _Watchers = {}

    def __len__(self) -> int:
        return sum(
            len(watchers) for table in (self._data, self._children) for watchers in table.values()
        )

    def leave_data_watch(self, connection: AcceptedConnection, path: str) -> None:
        """Watch a path for its creation, its data and its deletion."""
        self._data.setdefault(path, {})[connection] = None

    def leave_child_watch(self, connection: AcceptedConnection, path: str) -> None:
        """Watch a path for its child list and its deletion."""
        self._children.setdefault(path, {})[connection] = None

    def fire(self, changes: Iterable[Change]) -> list[Fired]:
        """Return who hears of `changes`; those watches are gone."""
        fired: list[Fired] = []
        for change in changes:
            match change.type:
                case WatchType.NODE_CREATED | WatchType.NODE_DATA_CHANGED:
                    watchers = self._data.pop(change.path, {})
                case WatchType.NODE_DELETED:
                    # One event for a connection that has left both kinds.
                    watchers = self._data.pop(change.path, {}) | self._children.pop(change.path, {})
                case WatchType.NODE_CHILDREN_CHANGED:
                    watchers = self._children.pop(change.path, {})
            event = WatcherEvent(event_type=change.type, path=change.path)
            fired += [(connection, event) for connection in watchers]
        return fired

    def forget(self, connection: AcceptedConnection) -> None:
        """Forget the watches of a connection that has ended."""
        for table in (self._data, self._children):
            for path in [path for path, watchers in table.items() if connection in watchers]:
                del table[path][connection]
                if not table[path]:
                    del table[path]

    def set_again(
        self, connection: AcceptedConnection, request: SetWatchesRequest, tree: ZnodeTree
    ) -> list[Fired]:
        """Leave a client's watches again; those whose path has changed since fire at once (ZK-20).

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
                self.leave_data_watch(connection, path)
        for path in request.exist_watches:
            if path in tree:
                events.append(WatcherEvent(event_type=WatchType.NODE_CREATED, path=path))
            else:
                self.leave_data_watch(connection, path)
        for path in request.child_watches:
            stat = tree.stat(path)
            if stat is None:
                events.append(WatcherEvent(event_type=WatchType.NODE_DELETED, path=path))
            elif stat.pzxid > since:
                events.append(WatcherEvent(event_type=WatchType.NODE_CHILDREN_CHANGED, path=path))
            else:
                self.leave_child_watch(connection, path)
        return [(connection, event) for event in events]
