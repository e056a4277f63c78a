"""The table `coordinator_requests` in plain Python: how often did each client ask a coordinator?

`pipeline.tables.coordinator_requests` computes the same with Spark, and tells what the table is
for.
"""

from pipeline.in_memory.trace import TableRow, Trace
from protocol.trace import TraceKind

_STEP_US = 100_000
"""Requests are counted in steps of a tenth of a second."""
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
    """Count the requests of each API that each client sent in each step."""
    table: dict[tuple[str, str, int, str, int], TableRow] = {}
    for row in trace.of(TraceKind.REQUEST_SENT):
        if row.api not in _OF_COORDINATION or row.group is None:
            continue
        from_us = row.time_us // _STEP_US * _STEP_US  # the beginning of the step
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
