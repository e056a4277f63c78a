"""Coverage marks of brokers, logs and controllers: fenced brokers, truncated logs, lost leaders.

A mark is a rare situation of a run. Each function below is the condition of one mark. The function
gets a row of the trace, and the state of the cluster before this row (`seen`). The module
`coordinators` explains the form of these functions.

Many conditions use the columns `peer` and `offset`, whose meaning depends on the kind of row:

- BROKER_FENCED, NODE_KILLED, NODE_PAUSED: `peer` is the node that was fenced, killed or paused.
- LEADER_ELECTED: `peer` is the new leader, or "" if there is none.
- BECAME_LEADER: `offset` is the end of the new leader's log.
- LOG_TRUNCATED: `offset` is the new end of the log.

The partitions of `__consumer_offsets` are called offsets partitions here, and their logs offsets
logs.
"""

from chaos.exploration.marks.base import MarkList
from chaos.exploration.marks.seen_cluster import SeenCluster, detail_of
from protocol.causes import FencingCause
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceKind, TraceRow

BROKER, CONTROLLER = "broker-", "controller-"
"""Beginnings of the names of brokers and controllers."""

SERVERS = MarkList()
mark = SERVERS.add


# -- logs -----------------------------------------------------------------------------------------


def _is_offsets(row: TraceRow) -> bool:
    """Return True if a row is about an offsets partition."""
    return (row.partition or "").startswith(CONSUMER_OFFSETS)


@mark("log_truncated", "a follower cut its offsets log by leader epoch", TraceKind.LOG_TRUNCATED)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return _is_offsets(row)


@mark(
    "unacknowledged_append_truncated",
    "a log was cut below a commit or assignment that had not been acknowledged",
    TraceKind.LOG_TRUNCATED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `unacknowledged` has the offsets of failed appends.
    failed = seen.unacknowledged.get((row.node, row.partition or ""), ())
    return any(base >= (row.offset or 0) for base in failed)


@mark(
    "truncated_below_what_was_loaded",
    "a log was cut below the offset up to which its broker had loaded it as a coordinator",
    TraceKind.LOG_TRUNCATED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return seen.loaded_to.get((row.node, row.partition or ""), 0) > (row.offset or 0)


@mark("high_watermark_fell", "a replica's high watermark went back", TraceKind.HIGH_WATERMARK)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return (row.offset or 0) < seen.high_watermarks.get((row.node, row.partition or ""), 0)


@mark(
    "new_leader_behind",
    "a new leader did not know whether the end of its log was committed",
    TraceKind.BECAME_LEADER,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    high_watermark = seen.high_watermarks.get((row.node, row.partition or ""))
    return high_watermark is not None and (row.offset or 0) > high_watermark


@mark(
    "disk_lost_records",
    "a broker found less in an offsets log than it had written",
    TraceKind.LOG_RECOVERED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return _is_offsets(row)


# -- replicas in sync -----------------------------------------------------------------------------


@mark(
    "commit_under_min_isr",
    "a commit failed while too few replicas were in sync",
    TraceKind.COMMIT_FAILED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    isr = seen.isr.get(seen.partition_of(row.group))
    return isr is not None and len(isr) < seen.context.min_insync_replicas


@mark(
    "living_follower_left_the_isr",
    "a follower that lived, and was not fenced, was too slow for the ISR",
    TraceKind.ISR_CHANGED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    isr_before, isr_now = seen.isr.get(row.partition or "", ()), detail_of(row).isr
    gone = [f"{BROKER}{broker}" for broker in isr_before if broker not in isr_now]
    return _is_offsets(row) and any(
        not seen.is_out(name) and name not in seen.fenced for name in gone
    )


@mark(
    "no_leader",
    "an offsets partition had no replica that could lead it",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return _is_offsets(row) and not row.peer


@mark(
    "leader_after_none",
    "an offsets partition without a leader got one again",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    before = seen.election(row.partition)
    return before is not None and not before.peer and bool(row.peer)


# -- brokers and controllers ----------------------------------------------------------------------


@mark(
    "coordinator_fenced_while_running",
    "the controller fenced a coordinator that still ran and served its groups",
    TraceKind.BROKER_FENCED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # The controller also fences a broker that shuts down or registers anew. This does not count.
    return (
        not seen.is_out(row.peer)
        and detail_of(row).reason == FencingCause.SESSION_ENDED
        and any(
            seen.coordinators.served_since(row.peer or "", partition) is not None
            for partition in seen.groups_in
        )
    )


@mark(
    "woke_up_deposed",
    "a paused broker resumed as a leader, although another one had been elected",
    TraceKind.NODE_RESUMED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return any(
        node == row.peer and seen.is_deposed(node, partition, epoch)
        for (node, partition), epoch in seen.believes.items()
    )


@mark(
    "restarted_before_fenced",
    "a broker started again before the controller had fenced it",
    TraceKind.NODE_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return row.node.startswith(BROKER) and row.node in seen.killed and row.node not in seen.fenced


@mark(
    "two_brokers_out",
    "two brokers were dead or paused at once",
    TraceKind.NODE_KILLED,
    TraceKind.NODE_PAUSED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return (row.peer or "").startswith(BROKER) and _is_any_out(seen, BROKER, except_node=row.peer)


@mark(
    "controller_and_broker_out",
    "the controller was dead or paused while a broker was",
    TraceKind.NODE_KILLED,
    TraceKind.NODE_PAUSED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    node = row.peer or ""
    if node.startswith(BROKER):
        return _is_any_out(seen, CONTROLLER, except_node=None)
    return node.startswith(CONTROLLER) and _is_any_out(seen, BROKER, except_node=None)


def _is_any_out(seen: SeenCluster, role: str, *, except_node: str | None) -> bool:
    """Return True if a node other than `except_node` is dead or paused.

    Only nodes whose name begins with `role` count.
    """
    return any(
        node.startswith(role) and node != except_node for node in (*seen.killed, *seen.paused)
    )
