"""The table `coordinator_requests` in plain Python: how often did each client ask a coordinator?

`pipeline.tables.coordinator_requests` computes the same with Spark, and tells what the table is
for.
"""

from pipeline.in_memory.trace import TableRow, Trace
from pipeline.table_columns import REQUEST_PERIOD_US
from protocol.trace import TraceKind

_OF_COORDINATION = frozenset(
    {
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetFetch",
    }
)
"""APIs of group coordination."""


def coordinator_requests_of(trace: Trace) -> list[TableRow]:
    """Count the requests of each API that each client sent in each period."""
    table: dict[tuple[str, str, int, str, int], TableRow] = {}
    for row in trace.of(TraceKind.REQUEST_SENT):
        if row.api not in _OF_COORDINATION or row.group is None:
            continue
        # The beginning of the row's period
        from_us = row.time_us // REQUEST_PERIOD_US * REQUEST_PERIOD_US
        counts = table.setdefault(
            (row.group, row.node, row.incarnation, row.api, from_us),
            {
                "group": row.group,
                "consumer": row.node,
                "incarnation": row.incarnation,
                "api": row.api,
                "from_us": from_us,
                "requests": 0,
            },
        )
        counts["requests"] += 1
    return list(table.values())
