"""The table `coordinator_requests` in plain Python: requests of group coordination by client.

The coordinator of a group is the broker that keeps its members and its committed offsets.
`pipeline.tables.coordinator_requests` computes the same with Spark.
"""

from pipeline.in_memory.trace import TableRow, Trace
from protocol.trace import TraceKind

_STEP_US = 100_000
"""Length of a step: requests are counted in tenths of a second."""
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
    """Return the number of requests of each API that each client sent in each step."""
    counts: dict[tuple[str, str, int, str, int], TableRow] = {}
    for row in trace.of(TraceKind.REQUEST_SENT):
        if row.api not in _OF_COORDINATION or row.group is None:
            continue
        # Round down to the beginning of the step.
        from_us = row.time_us // _STEP_US * _STEP_US
        counted = counts.setdefault(
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
        counted["requests"] += 1
    return list(counts.values())
