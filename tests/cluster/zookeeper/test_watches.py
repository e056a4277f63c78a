"""The watches of one ZooKeeper server: which ones fire, and for which connection.

A client sets a watch on a znode, and gets one event at the znode's next change. A WatchTable has
all watches of a server. `watches.fire(changes)` takes the changes that a write has made, and
returns the events to send, each with its connection. A and B are the connections of two clients.

Ids such as ZK-16 name rules of docs/kafka/ZOOKEEPER_CONSUMER.md, which the docstrings quote.
"""

from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.watches import WatchTable
from cluster.zookeeper.znodes import Change, ZnodeTree
from protocol.ids import NodeName
from protocol.messages.zookeeper import (
    NO_SESSION,
    SetWatchesRequest,
    WatcherEvent,
    WatchType,
    Zxid,
)

A = AcceptedConnection(NodeName("a"), 0)
B = AcceptedConnection(NodeName("b"), 0)


def test_watch_is_one_shot_and_registered_twice_counts_once() -> None:
    """A watch is one-shot and belongs to (session's connection, path) as a set (ZK-16)."""
    watches = WatchTable()
    watches.add_data_watch(A, "/t")
    watches.add_data_watch(A, "/t")
    watches.add_data_watch(B, "/t")
    change = Change(WatchType.NODE_DATA_CHANGED, "/t")

    event = WatcherEvent(event_type=WatchType.NODE_DATA_CHANGED, path="/t")
    assert watches.fire([change]) == [(A, event), (B, event)]
    assert watches.fire([change]) == []


def test_exists_watch_fires_on_the_creation_and_a_child_watch_on_the_child_list() -> None:
    """A watch that `exists` has set fires when its path is created.

    A watch that `getChildren` has set fires when the path gets a new child.

    Source: ZK-16.
    """
    watches = WatchTable()
    watches.add_data_watch(A, "/ids/c")
    watches.add_child_watch(B, "/ids")
    tree = ZnodeTree([("/ids", "")])

    fired = watches.fire(tree.create("/ids/c", "", NO_SESSION, Zxid(1)))

    assert fired == [
        (A, WatcherEvent(event_type=WatchType.NODE_CREATED, path="/ids/c")),
        (B, WatcherEvent(event_type=WatchType.NODE_CHILDREN_CHANGED, path="/ids")),
    ]


def test_deletion_fires_both_kinds_of_watches_as_one_event_a_connection() -> None:
    """A connection with a data watch and a child watch on a znode gets one event (ZK-16)."""
    watches = WatchTable()
    watches.add_data_watch(A, "/ids")
    watches.add_child_watch(A, "/ids")

    fired = watches.fire([Change(WatchType.NODE_DELETED, "/ids")])

    assert fired == [(A, WatcherEvent(event_type=WatchType.NODE_DELETED, path="/ids"))]
    assert len(watches) == 0


def test_watches_of_a_connection_are_removed_with_it() -> None:
    """A watch belongs to (session's connection, path), and ends with the connection (ZK-16)."""
    watches = WatchTable()
    watches.add_data_watch(A, "/ids")
    watches.add_child_watch(A, "/ids")
    watches.add_child_watch(B, "/ids")

    watches.forget(A)

    assert len(watches) == 1


def test_watch_registered_again_fires_at_once_if_its_path_has_changed_since() -> None:
    """A client registers its watches again with the last zxid that it has seen, here 4 (ZK-20).

    The server fires at once the watches whose path has changed since, and keeps the others.
    """
    tree = ZnodeTree([("/ids", ""), ("/t", ""), ("/unchanged", "")])
    tree.set_data("/t", "new", Zxid(5))
    tree.create("/ids/c", "", NO_SESSION, Zxid(6))
    watches = WatchTable()
    # `getData` has set the data watches, `exists` on missing paths the exist watches, and
    # `getChildren` the child watches.
    request = SetWatchesRequest(
        relative_zxid=Zxid(4),
        data_watches=("/t", "/unchanged", "/deleted"),
        exist_watches=("/ids/c", "/not-yet"),
        child_watches=("/ids", "/unchanged"),
    )

    fired = [event for _connection, event in watches.restore_watches(A, request, tree)]

    assert fired == [
        WatcherEvent(event_type=WatchType.NODE_DATA_CHANGED, path="/t"),
        WatcherEvent(event_type=WatchType.NODE_DELETED, path="/deleted"),
        WatcherEvent(event_type=WatchType.NODE_CREATED, path="/ids/c"),
        WatcherEvent(event_type=WatchType.NODE_CHILDREN_CHANGED, path="/ids"),
    ]
    # The other three watches are kept: two on /unchanged, and one on /not-yet.
    assert len(watches) == 3
