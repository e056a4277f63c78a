"""Coverage marks of administrators' orders about groups, and their consequences.

A mark is a rare situation of a run. Each function below is the condition of one mark. The function
gets a row of the trace, and the state of the cluster before this row (`seen`). The module
`coordinators` explains the form of these functions.
"""

from chaos.checkers.evidence.commit_registers import GIVEN_UP_BY_THE_CLIENT
from chaos.exploration.marks.base import MarkList
from chaos.exploration.marks.seen_cluster import SeenCluster, created_topic_of, detail_of
from cluster.client.admin.admin_client import REMOVED_BY_AN_ADMIN
from protocol.causes import DeletionCause
from protocol.trace import TraceKind, TraceRow

ORDERS = MarkList()
mark = ORDERS.add


@mark(
    "members_taken_out",
    "an administrator removed members of a group that was at work",
    TraceKind.REBALANCE_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # A request to remove members gives a reason, and this reason is that of an administrator.
    return detail_of(row).client_reason == REMOVED_BY_AN_ADMIN


@mark(
    "group_deleted_in_a_transaction",
    "an administrator deleted a group while offsets of it waited for the end of their transaction",
    TraceKind.GROUP_STATE,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `seen.transactions` has pairs that begin with a group.
    return row.cause == DeletionCause.DELETED and any(
        group == row.group for group, _ in seen.transactions
    )


@mark(
    "deleted_group_came_back",
    "members came back to a group that had been deleted, and its generations began anew",
    TraceKind.GENERATION_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # The first generation of a group has the number 1.
    return row.generation == 1 and row.group in seen.deleted


@mark(
    "topic_deleted",
    "an administrator deleted a topic",
    TraceKind.TOPIC_DELETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    del seen, row
    return True


@mark(
    "deleted_topic_created_again",
    "an administrator asked for a new topic with the name of a deleted one",
    TraceKind.FAULT_INJECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # An administrator's order is a fault of the plan. If the fault creates no topic,
    # `created_topic_of` returns None, which is not in `deleted_topics`.
    return created_topic_of(row) in seen.deleted_topics


@mark(
    "topic_created_beside_a_fenced_broker",
    "an administrator asked for a new topic while a broker was fenced",
    TraceKind.FAULT_INJECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `seen.fenced` has the brokers that the controller has fenced.
    return created_topic_of(row) is not None and bool(seen.fenced)


@mark(
    "offsets_perhaps_reset",
    "an administrator's commit got no answer, and perhaps was stored",
    TraceKind.ADMIN_COMMIT,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # The errors of a request whose answer the client no longer waits for. The administrator's
    # commit sets a group's offsets, so perhaps they are reset now.
    return row.error in GIVEN_UP_BY_THE_CLIENT
