"""The tables `runs`, `groups` and `bad_rows` in plain Python.

A bad row lacks a cell that every row must have, or has an unknown kind. The steady state of a run
is the state with all groups, members and partitions complete.
"""

from collections.abc import Sequence

from pipeline.in_memory.trace import MEMBER_KINDS, TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind

_NEEDED = ("time_us", "seq", "node", "incarnation", "kind")
"""Columns that every row must have. If a row lacks several of them, the first one is the reason."""


@once_per_trace
def runs_of(trace: Trace) -> list[TableRow]:
    """Return the only row of the table `runs`: one run has one row."""
    begun: dict[str, int] = {}  # time at which each stage of the run began
    for row in trace.of(TraceKind.RUN_STAGE):
        begun.setdefault(detail_of(row)["stage"], row.time_us)
    return [
        {
            "events": len(trace.rows),
            "nodes": len({row.node for row in trace.rows}),
            "steady_us": begun.get("steady"),
            # A run that broke off has no stage `stopping`: it ends with its last row.
            "end_us": begun.get("stopping", trace.rows[-1].time_us),
            "completed": "stopping" in begun,
        }
    ]


def groups_of(trace: Trace) -> list[TableRow]:
    """Return each group that had members, with its offsets partition and its number of consumers.

    The offsets partition is the partition of `__consumer_offsets` that holds the group.
    """
    consumers: dict[str, set[str]] = {}  # the nodes that were members, by group
    for row in trace.of(*MEMBER_KINDS):
        if row.group is not None:
            consumers.setdefault(row.group, set()).add(row.node)
    return [
        {"group": group, "partition": partition, "consumers": len(consumers[group])}
        for group, partition in trace.groups().items()
    ]


def bad_rows_of(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows of a file that cannot be used, each with the first reason."""
    known_kinds = {kind.value for kind in TraceKind}
    bad = []
    for row in rows:
        reasons = [f"no {name}" for name in _NEEDED if row[name] is None]
        if not reasons and row["kind"] not in known_kinds:
            reasons = ["unknown kind"]
        if reasons:
            cells = {name: row[name] for name in (*_NEEDED, "detail")}
            bad.append(cells | {"reason": reasons[0]})
    return bad
