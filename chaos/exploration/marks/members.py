"""Coverage marks of members: missed rebalances, errors after a pause, two owners.

A mark is a rare situation of a run. Each function below is the condition of one mark. The function
gets a row of the trace, and the state of the cluster before this row (`seen`). The module
`coordinators` explains the form of these functions.

Some rows name a member by its member id, others by its node, which is the process, such as
`consumer-orders-1`. `seen.nodes` has the node of each member id. In rows NODE_KILLED and
NODE_PAUSED `row.peer` is the killed or paused node.

A member expires if it is silent for its session timeout. Its coordinator then removes it from the
group.
"""

from chaos.exploration.marks.base import Condition, MarkList
from chaos.exploration.marks.seen_cluster import SeenCluster, detail_of
from protocol.causes import RemovalCause
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow

JUST_WOKE_US = 5_000_000
"""An error within this time after a pause counts as a consequence of the pause."""
JOINING = ("PREPARING_REBALANCE", "COMPLETING_REBALANCE")
"""States of a consumer between its JoinGroup and its assignment."""
COMMIT_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
)
"""Errors of commits. There is a mark for each error (at the end of this module)."""

MEMBERS = MarkList()
mark = MEMBERS.add


# -- missing a rebalance --------------------------------------------------------------------------


@mark(
    "expired_while_paused",
    "a member expired while it was paused",
    TraceKind.MEMBER_REMOVED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return (
        row.cause == RemovalCause.SESSION_EXPIRY and seen.nodes.get(row.member or "") in seen.paused
    )


def _woke_up_to(error: ErrorCode) -> Condition:
    """Return the condition that a consumer got `error` soon after a pause."""

    def condition(seen: SeenCluster, row: TraceRow) -> bool:
        pause = seen.pauses.get(row.node)  # the last pause of the node
        if pause is None:
            return False
        _, pause_end_us = pause
        return row.time_us - pause_end_us < JUST_WOKE_US and row.error == error.name

    return condition


# `mark(...)` returns a decorator. Here the decorator is called with a condition that `_woke_up_to`
# has made.
mark(
    "woke_up_to_UNKNOWN_MEMBER_ID",
    "a paused member woke up and learnt that it had been removed from its group",
    TraceKind.MEMBER_STATE,
)(_woke_up_to(ErrorCode.UNKNOWN_MEMBER_ID))

mark(
    "woke_up_to_ILLEGAL_GENERATION",
    "a paused member woke up and learnt that its generation was over",
    TraceKind.MEMBER_STATE,
)(_woke_up_to(ErrorCode.ILLEGAL_GENERATION))


@mark(
    "out_while_joining",
    "a member died or was paused between its JoinGroup and its assignment",
    TraceKind.NODE_KILLED,
    TraceKind.NODE_PAUSED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return seen.presence.state(row.peer or "") in JOINING


@mark(
    "leader_out_before_sync",
    "the leader of a generation died or was paused before the assignment was stored",
    TraceKind.NODE_KILLED,
    TraceKind.NODE_PAUSED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # In the state CompletingRebalance the group waits for the assignment of its leader. `leaders`
    # has the member id of each group's leader.
    return any(
        seen.nodes.get(leader) == row.peer
        and seen.coordinators.state_at(_coordinator(seen, group) or "", group)
        == "CompletingRebalance"
        for group, leader in seen.leaders.items()
    )


@mark(
    "static_member_replaced_in_sync_phase",
    "a static member came back under a new member id while an assignment was out",
    TraceKind.MEMBER_ADDED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return (
        row.cause == RemovalCause.STATIC_MEMBER_REPLACED
        and seen.coordinators.state_at(row.node, row.group or "") == "CompletingRebalance"
    )


@mark(
    "first_generation_among_faults",
    "a group's first generation began while a broker or the controller was dead or paused",
    TraceKind.GENERATION_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # A group that was deleted and comes back also has a generation 1, but this is not its first.
    return (
        row.generation == 1
        and row.group not in seen.deleted
        and any(not node.startswith("consumer-") for node in (*seen.killed, *seen.paused))
    )


# -- finding the coordinator ----------------------------------------------------------------------


@mark(
    "coordinator_named_two_elections_late",
    "a broker named as coordinator a broker after which two others had been elected",
    TraceKind.COORDINATOR_FOUND,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    elections = seen.elections.get(seen.partition_of(row.group))
    if elections is None:
        return False
    # `elections` has the newest elections, at most three. There may be only one, but the assignment
    # below needs at least two values. So two None stand before the leaders.
    *older, before, newest = [None, None, *(election.peer for election in elections)]
    return row.peer in older and row.peer not in (before, newest)


def _coordinator(seen: SeenCluster, group: str | None) -> str | None:
    """Return the last elected leader of a group's offsets partition; None before any election."""
    newest = seen.election(seen.partition_of(group))
    return None if newest is None else newest.peer


# -- owning and committing ------------------------------------------------------------------------


@mark(
    "partitions_lost",
    "a member learnt that it had lost its partitions",
    TraceKind.PARTITIONS_LOST,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return bool(detail_of(row).partitions)


@mark(
    "two_owners",
    "two living members owned a partition at once",
    TraceKind.PARTITIONS_ASSIGNED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `owners.of` returns the present owners of a partition, as (node, incarnation).
    return any(
        node != row.node
        for partition in detail_of(row).partitions
        for node, _ in seen.owners.of(row.group or "", partition)
    )


@mark(
    "commit_of_the_dead_stored",
    "a commit was stored after its member had died or been paused",
    TraceKind.COMMIT_STORED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # For an unknown member id the node is None, which is never out.
    return seen.is_out(seen.nodes.get(row.member or ""))


@mark(
    "timed_out_commit_came_true",
    "a fetch returned the offset of a commit that had failed with a timeout",
    TraceKind.OFFSETS_FETCHED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `indefinite` has the commits of which it is not known whether they were stored. If the row has
    # no offset, -1 is looked for, which is the offset of no commit.
    key = (row.group or "", row.partition or "", -1 if row.offset is None else row.offset)
    return key in seen.indefinite


def _commit_failed_with(error: ErrorCode) -> Condition:
    """Return the condition that a broker answered a commit with `error`."""

    def condition(seen: SeenCluster, row: TraceRow) -> bool:
        del seen
        # `peer` is the broker that answered. If it is None, the client itself gave the commit up.
        return row.error == error.name and row.peer is not None

    return condition


for _error in COMMIT_ERRORS:
    mark(
        f"commit_failed_{_error.name}",
        f"a coordinator answered a commit with {_error.name}",
        TraceKind.COMMIT_FAILED,
    )(_commit_failed_with(_error))
