"""Marks of operations: rare situations during a rollout or a scaling of a group.

An operation is something that a user does with a group on purpose. A rollout replaces all members
of the group by successors. A scaling changes the number of members. Operations are injected like
faults. Most searches have no operations, because the list of faults of these searches has none.

A mark is a rare situation of a run. Each function below is the condition of one mark. The function
gets a row of the trace, and the state of the cluster before this row (`seen`). `seen.operations`
has the operations that go on. `seen.is_operated_on(group)` is True while an operation on the group
goes on. The module `coordinators` explains the form of these functions.

The driver is the process that injects faults. In rows that the driver has written, `row.peer` is
the node that died or was paused.
"""

from chaos.exploration.marks.base import MarkList
from chaos.exploration.marks.members import JOINING
from chaos.exploration.marks.seen_cluster import SeenCluster, detail_of, operation_of
from protocol.causes import RemovalCause
from protocol.trace import TraceKind, TraceRow

OPERATIONS = MarkList()
mark = OPERATIONS.add


@mark(
    "server_out_in_an_operation",
    "a broker or the controller died or was paused while members were replaced or scaled",
    TraceKind.NODE_KILLED,
    TraceKind.NODE_PAUSED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # A node whose name begins with "consumer-" is a member. Members do not count here.
    return bool(seen.operations) and not (row.peer or "").startswith("consumer-")


@mark(
    "coordinator_moved_in_an_operation",
    "a coordinator loaded a group whose members were being replaced or scaled",
    TraceKind.GROUP_LOADED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return seen.is_operated_on(row.group)


@mark(
    "static_member_replaced_in_an_operation",
    "the successor of a static member took its place in the group",
    TraceKind.MEMBER_ADDED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # When the new member takes the place of the old member, the coordinator writes MEMBER_REMOVED
    # for the old member and MEMBER_ADDED for the new member. Both rows have this cause.
    return row.cause == RemovalCause.STATIC_MEMBER_REPLACED and seen.is_operated_on(row.group)


@mark(
    "session_ended_before_the_successor_came",
    "a member that an operation stopped was removed when its session ended",
    TraceKind.MEMBER_REMOVED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `row.member` is a member id. `seen.nodes` maps this id to the node of the member. For an
    # unknown id `get` returns None, which is never in `seen.killed`. `seen.killed` has the nodes
    # that were killed or stopped.
    return (
        row.cause == RemovalCause.SESSION_EXPIRY
        and seen.is_operated_on(row.group)
        and seen.nodes.get(row.member or "") in seen.killed
    )


@mark(
    "stopped_while_joining",
    "an operation stopped a member between its JoinGroup and its assignment",
    TraceKind.NODE_STOPPED,
    TraceKind.NODE_KILLED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # The driver writes NODE_KILLED, with the killed node in `peer`. But NODE_STOPPED is written by
    # the node that stops, and has no `peer`.
    node = row.peer or row.node
    # JOINING has the states of a consumer between its JoinGroup and its assignment.
    return bool(seen.operations) and seen.presence.state(node) in JOINING


@mark(
    "emptied_by_an_operation",
    "a group whose members were being replaced or scaled had none left",
    TraceKind.GROUP_STATE,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return seen.is_operated_on(row.group) and detail_of(row).to == "Empty"


@mark(
    "two_operations_on_one_group",
    "an operation began on a group while another one went on",
    TraceKind.FAULT_INJECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `operation_of` returns the groups of the operation that begins with this row. If the fault is
    # no operation, there are no such groups.
    return any(map(seen.is_operated_on, operation_of(row)))
