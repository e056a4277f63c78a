"""Coverage marks of transactions: the coordinators that end them, and their waiting offsets.

A mark is a rare situation of a run. Each function below is the condition of one mark. The function
gets a row of the trace, and the state of the cluster before this row (`seen`). The module
`coordinators` explains the form of these functions.

Two coordinators take part in a transaction with offsets:

- The transaction coordinator decides whether the transaction is committed or aborted. Then it
  writes a marker to each partition of the transaction.
- The group coordinator takes the offsets, and keeps them until it gets the marker. For each open
  transaction, `seen.transactions` has the group coordinator that took the offsets.
"""

from chaos.exploration.marks.base import MarkList
from chaos.exploration.marks.seen_cluster import DECIDED, SeenCluster, detail_of
from protocol.trace import TraceKind, TraceRow

TRANSACTIONS = MarkList()
mark = TRANSACTIONS.add


@mark(
    "transaction_ended_by_the_next",
    "a transaction coordinator wrote the markers of a decision of another coordinator",
    TraceKind.TRANSACTION_STATE,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    detail = detail_of(row)
    # If a transaction leaves a decided state, `row.node` has written all markers. `seen.decided`
    # has the node that decided the outcome.
    return (
        detail.before in DECIDED and seen.decided.get(detail.transactional_id, row.node) != row.node
    )


@mark(
    "group_loaded_with_an_open_transaction",
    "a group moved while offsets of it waited for the end of their transaction",
    TraceKind.LOAD_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return any(
        node != row.node and seen.partition_of(group) == row.partition
        for (group, _), node in seen.transactions.items()
    )


@mark(
    "marker_after_the_group_moved",
    "a transaction ended at another group coordinator than the one that had taken its offsets",
    TraceKind.TRANSACTION_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    taken_by = seen.transactions.get((row.group or "", detail_of(row).producer_id))
    return taken_by is not None and taken_by != row.node


@mark(
    "offsets_of_a_transaction_aborted",
    "a group's offsets were dropped because their transaction was aborted",
    TraceKind.TRANSACTION_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return not detail_of(row).committed
