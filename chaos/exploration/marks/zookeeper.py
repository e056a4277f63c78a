"""Coverage marks of groups on ZooKeeper: the races that docs/kafka/ZOOKEEPER_CONSUMER.md names.

An id in parentheses, such as ZK-37, names a rule in this document.

A mark is a rare situation of a run. Each function below is the condition of one mark. The function
gets a row of the trace, and the state of the cluster before this row (`seen`). The module
`coordinators` explains the form of these functions. `seen.on_zookeeper` has the state that only the
marks of this module need.

Consumers on ZooKeeper have no coordinator. Each consumer rebalances for itself, in one or more
attempts. In an attempt, the consumer reads the members of its group from ZooKeeper (its view), and
computes its own share of the partitions. Then it claims each of these partitions by creating a
znode, the owner node of the partition. In rows about ZooKeeper, `offset` is the zxid, which is the
number that ZooKeeper gives to a change.
"""

from chaos.checkers.context import detail_of
from chaos.exploration.marks.base import MarkList
from chaos.exploration.marks.seen_cluster import SeenCluster
from protocol.trace import TraceKind, TraceRow

ON_ZOOKEEPER = MarkList()
mark = ON_ZOOKEEPER.add
LATE_US = 100_000
"""A watch is late if it fires more than this time after the first server has applied the change."""
APART_US = 3_000_000
"""Two different views within this time count as views of the same change."""
AT_ONCE_US = 50_000
"""An event within this time after a reconnection counts as a consequence of the reconnection."""
SESSIONLESS_US = 1_000_000
"""Processing counts as "without a session" only if the session ended longer ago than this."""


@mark(
    "gave_up_starting",
    "a consumer gave up a rebalance while it started: its program gets an exception (ZK-37)",
    TraceKind.ZOOKEEPER_GAVE_UP,
)
def _gave_up_starting(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return bool(detail_of(row)["during"] == "starting")


@mark(
    "gave_up_running",
    "a running consumer gave up a rebalance, and only logged an error (ZK-38)",
    TraceKind.ZOOKEEPER_GAVE_UP,
)
def _gave_up_running(seen: SeenCluster, row: TraceRow) -> bool:
    return not _gave_up_starting(seen, row)


@mark(
    "processed_without_a_session",
    "a consumer processed records a second after its session was over (ZK-14, ZK-58)",
    TraceKind.RECORDS_CONSUMED,
)
def _processed_without_a_session(seen: SeenCluster, row: TraceRow) -> bool:
    # `ended` has the sessions that are over, each with the row that ended it.
    session = seen.on_zookeeper.session_of(row.node)
    end = seen.zookeeper_tree.ended.get(session or "")
    return end is not None and row.time_us - end.time_us > SESSIONLESS_US


@mark(
    "views_apart",
    "two consumers computed from different members within 3 s (ZK-71, ZK-95)",
    TraceKind.ZOOKEEPER_VIEW,
)
def _views_apart(seen: SeenCluster, row: TraceRow) -> bool:
    members = detail_of(row)["members"]
    return any(
        node != row.node
        and view.group == row.group
        and row.time_us - view.time_us < APART_US
        and detail_of(view)["members"] != members
        # The other consumer has read its view earlier, but its zxid is not lower. So the view of
        # this row is outdated.
        and (view.offset or 0) >= (row.offset or 0)
        for node, view in seen.on_zookeeper.views.items()
    )


@mark(
    "heard_late",
    "a server fired a watch 100 ms after another had applied the change (ZK-17, ZK-70)",
    TraceKind.ZOOKEEPER_WATCH_FIRED,
)
def _heard_late(seen: SeenCluster, row: TraceRow) -> bool:
    applied_us = seen.on_zookeeper.applied_us.get(row.offset or 0)
    return applied_us is not None and row.time_us - applied_us > LATE_US


@mark(
    "member_vanished_between_reads",
    "an attempt ended with an exception, as when a member is gone between two reads (ZK-42, ZK-72)",
    TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
)
def _member_vanished(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return row.cause_text is not None  # the text of the exception


@mark(
    "owner_was_dead",
    "a claim met the owner node of a process that was dead (ZK-50)",
    TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
)
def _owner_was_dead(seen: SeenCluster, row: TraceRow) -> bool:
    # The owner is the id of a thread. This id contains the consumer id of the member.
    owner = str(detail_of(row)["owner"])
    return any(member in owner for member in seen.on_zookeeper.dead_members)


@mark(
    "owner_node_of_another_deleted",
    "a session deleted the owner node of another one (ZK-08, ZK-74)",
    TraceKind.ZOOKEEPER_TXN_APPLIED,
)
def _anothers_node_deleted(seen: SeenCluster, row: TraceRow) -> bool:
    detail = detail_of(row)
    if detail["op"] != "delete" or (row.offset or 0) <= seen.zookeeper_tree.last_zxid:
        return False
    # Each server writes a row when it applies the transaction. `last_zxid` is the newest zxid in
    # the tree. So the condition above lets only the first of these rows pass, at which the tree
    # still has the znode.
    znode = seen.zookeeper_tree.now(detail["path"])
    # A znode with the session None is persistent, so no session owns it.
    return znode is not None and znode.session not in (None, detail["session"])


@mark(
    "offset_set_back_in_zookeeper",
    "a commit to ZooKeeper set an offset back (ZK-60, ZK-66)",
    TraceKind.ZOOKEEPER_TXN_APPLIED,
)
def _set_back(seen: SeenCluster, row: TraceRow) -> bool:
    detail = detail_of(row)
    path = str(detail.get("path"))
    if detail["op"] != "setData" or "/offsets/" not in path:
        return False
    znode = seen.zookeeper_tree.now(path)
    # Each server writes a row when it applies the transaction. Only the first of these rows counts,
    # because the tree has the new offset at later rows.
    is_news = (row.offset or 0) > seen.zookeeper_tree.last_zxid
    return is_news and znode is not None and int(detail["data"]) < int(znode.data)


@mark(
    "session_at_another_server",
    "a session went on at another server of the ensemble (ZK-09)",
    TraceKind.ZOOKEEPER_CLIENT_STATE,
)
def _at_another_server(seen: SeenCluster, row: TraceRow) -> bool:
    detail = detail_of(row)
    before = seen.on_zookeeper.connected.get(row.node)
    # `peer` is the server to which the client is connected.
    return (
        detail["state"] == "SyncConnected"
        and before is not None
        and detail_of(before)["session"] == detail["session"]
        and before.peer != row.peer
    )


@mark(
    "event_at_reconnection",
    "a consumer missed a change while disconnected, and learnt of it upon reconnection (ZK-20)",
    TraceKind.ZOOKEEPER_EVENT_RECEIVED,
)
def _event_at_reconnection(seen: SeenCluster, row: TraceRow) -> bool:
    # In rows of a client, `offset` is the newest zxid that the client has seen. If it is the same
    # in the row of the reconnection and in the row of the event, the client got no newer answer in
    # between.
    connected = seen.on_zookeeper.connected.get(row.node)
    return (
        connected is not None
        and connected.offset == row.offset
        and (connected.offset or 0) > 0
        and row.time_us - connected.time_us < AT_ONCE_US
    )


@mark(
    "change_within_a_rebalance",
    "a consumer began another rebalance as soon as one was over (ZK-30)",
    TraceKind.ZOOKEEPER_ATTEMPT_STARTED,
)
def _change_within_a_rebalance(seen: SeenCluster, row: TraceRow) -> bool:
    ended = seen.on_zookeeper.ended.get(row.node)
    return (
        ended is not None
        and ended.incarnation == row.incarnation
        # In virtual time, two rows of a consumer have the same time if it does not wait between
        # them.
        and row.time_us == ended.time_us
        and detail_of(row)["attempt"] == 0  # the first attempt of its rebalance
        and bool(detail_of(ended)["done"])  # the last attempt succeeded
    )


@mark(
    "position_behind_a_commit",
    "a consumer began at an offset that is below the one committed by then (ZK-44)",
    TraceKind.PARTITIONS_ASSIGNED,
)
def _position_behind_a_commit(seen: SeenCluster, row: TraceRow) -> bool:
    if row.group not in seen.context.zookeeper_groups:
        return False
    # Compare the offset at which the consumer began with the offset that is in ZooKeeper now.
    for partition in detail_of(row)["partitions"]:
        topic, _, index = partition.rpartition("-")
        stored = seen.zookeeper_tree.now(f"/consumers/{row.group}/offsets/{topic}/{index}")
        position = seen.on_zookeeper.positions.get((row.node, partition))
        if stored is not None and position is not None and position < int(stored.data):
            return True
    return False


@mark(
    "lost_with_its_session",
    "a consumer whose session had expired gave up partitions that others had claimed (ZK-55)",
    TraceKind.PARTITIONS_LOST,
)
def _lost_with_its_session(seen: SeenCluster, row: TraceRow) -> bool:
    # A consumer on ZooKeeper loses partitions only if its session expires. In all other cases it
    # revokes partitions, and writes another kind of row.
    return row.group in seen.context.zookeeper_groups


@mark(
    "committed_after_an_expiry",
    "a commit that was begun before an expiry was carried out in the next session (ZK-66)",
    TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
)
def _committed_after_an_expiry(seen: SeenCluster, row: TraceRow) -> bool:
    expired = seen.on_zookeeper.expired.get(row.node)
    # `begun_us` is a time of the node's own clock. So it is compared with `node_time_us`, which is
    # the time of the same clock.
    return expired is not None and detail_of(row)["begun_us"] < expired.node_time_us


@mark(
    "ensemble_elected_again",
    "a server began to lead the ensemble in a later epoch, with new deadlines of all sessions",
    TraceKind.ZOOKEEPER_STATE,
)
def _elected_again(seen: SeenCluster, row: TraceRow) -> bool:
    led = seen.on_zookeeper.led_epoch
    is_leading = detail_of(row)["state"] == "LEADING"
    return is_leading and led is not None and (row.leader_epoch or 0) > led


@mark(
    "group_without_an_ensemble",
    "a consumer processed records while no server of the ensemble served (ZK-58)",
    TraceKind.RECORDS_CONSUMED,
)
def _without_an_ensemble(seen: SeenCluster, row: TraceRow) -> bool:
    on_zookeeper = seen.on_zookeeper
    # `not any` is also True if no state of a server is known yet. So there must be a state.
    return (
        row.group in seen.context.zookeeper_groups
        and bool(on_zookeeper.states)
        and not any(on_zookeeper.states.values())
    )
