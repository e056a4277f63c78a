"""The tables `runs`, `groups` and `bad_rows` in plain Python."""

from collections.abc import Sequence

from pipeline.in_memory.trace import MEMBER_KINDS, TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind

_NEEDED = ("time_us", "seq", "node", "incarnation", "kind")
"""Columns in which every row must have a value. If a row lacks one of these values, it is bad."""


@once_per_trace
def runs_of(trace: Trace) -> list[TableRow]:
    """Return the table `runs`, which has one row about the run."""
    stage_began_us: dict[str, int] = {}
    for row in trace.of(TraceKind.RUN_STAGE):
        stage_began_us.setdefault(detail_of(row)["stage"], row.time_us)
    return [
        {
            "events": len(trace.rows),
            "nodes": len({row.node for row in trace.rows}),
            # When all groups had all their members and partitions.
            "steady_us": stage_began_us.get("steady"),
            # A run that broke off never came to its stage `stopping`. It ends with its last row.
            "end_us": stage_began_us.get("stopping", trace.rows[-1].time_us),
            "completed": "stopping" in stage_began_us,
        }
    ]


def groups_of(trace: Trace) -> list[TableRow]:
    """Return each group that had members.

    A row has the group's partition of `__consumer_offsets`, and how many consumers were members.
    """
    members: dict[str, set[str]] = {}  # the nodes that were members of each group
    for row in trace.of(*MEMBER_KINDS):
        if row.group is not None:
            members.setdefault(row.group, set()).add(row.node)
    return [
        {"group": group, "partition": partition, "consumers": len(members[group])}
        for group, partition in trace.groups().items()
    ]


def bad_rows_of(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows that cannot be used, each with the reason, such as `no node`.

    If there are several reasons, the first reason is given.
    """
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
