"""The table `faults` in plain Python: time, target and blast radius of each fault that hit a node.

The blast radius of a fault is the groups, partitions and nodes that it affects, as the trace lists
them. A fault is in force while all affected nodes have it, and healed when it is undone.
`pipeline.tables.faults` computes the same with Spark.
"""

from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def faults_of(trace: Trace) -> list[TableRow]:
    """Return the faults that hit a node, sorted by time and, at one moment, by id."""
    # A fault that hit no node has a row FAULT_MISSED. In the rows about a fault, `cause` is its id.
    missed = {row.cause for row in trace.of(TraceKind.FAULT_MISSED)}
    hits = sorted(
        (row for row in trace.of(TraceKind.FAULT_INJECTED) if row.cause not in missed),
        key=lambda row: (row.time_us, row.cause),
    )
    table = []
    for index, row in enumerate(hits):
        detail = detail_of(row)
        in_force = _first_of(trace, TraceKind.FAULT_IN_FORCE, row)
        healed = _first_of(trace, TraceKind.FAULT_HEALED, row)
        # `peer` is the first of the fault's nodes. If the detail lists no nodes, it is the only
        # one.
        nodes = detail.get("nodes") or ([row.peer] if row.peer else [])
        is_last = index == len(hits) - 1
        table.append(
            {
                "fault": row.cause,
                "kind": detail.get("fault"),
                "target": detail.get("target"),
                "node": row.peer or (nodes[0] if nodes else None),
                "injected_us": row.time_us,
                "in_force_us": in_force.time_us if in_force else None,
                "in_force_until_us": detail_of(healed).get("in_force_until_us") if healed else None,
                "healed_us": healed.time_us if healed else None,
                # Effects after the next fault count as effects of the next fault.
                "until_us": trace.end_us if is_last else hits[index + 1].time_us,
                "groups": detail.get("groups", []),
                "partitions": detail.get("partitions", []),
                "nodes": nodes,
                "from_nodes": detail.get("from", []),
                "to_nodes": detail.get("to", []),
            }
        )
    return table


def _first_of(trace: Trace, kind: TraceKind, injected: TraceRow) -> TraceRow | None:
    """Return the first row of a kind about a fault; rows about faults have its id as `cause`."""
    rows = [row for row in trace.of(kind) if row.cause == injected.cause]
    return rows[0] if rows else None
