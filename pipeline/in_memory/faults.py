"""The table `faults` in plain Python: whom each fault hit, and when it was injected and healed.

The driver, which conducts the run, writes rows about each fault: FAULT_INJECTED with the nodes,
groups and partitions that the fault affects, FAULT_IN_FORCE when all these nodes have the fault,
and FAULT_HEALED when the fault is undone. `pipeline.tables.faults` computes the same with Spark.
"""

from collections.abc import Sequence

from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def faults_of(trace: Trace) -> list[TableRow]:
    """Return the faults that hit a node, sorted by time, and by id if they have the same time."""
    # In the rows about a fault, `cause` is the fault's id. A fault can miss, for example if the
    # node that it should hit is already dead. Such a fault has a row FAULT_MISSED, too.
    missed = {row.cause for row in trace.of(TraceKind.FAULT_MISSED)}
    injections = sorted(
        (row for row in trace.of(TraceKind.FAULT_INJECTED) if row.cause not in missed),
        key=lambda row: (row.time_us, row.cause),
    )
    table = []
    for index, row in enumerate(injections):
        detail = detail_of(row)
        in_force = _first_about(row.cause, trace.of(TraceKind.FAULT_IN_FORCE))
        healed = _first_about(row.cause, trace.of(TraceKind.FAULT_HEALED))
        # `peer` is the first node that the fault hit. If the detail does not list the nodes, the
        # fault hit only this node. If `peer` is missing, it is taken from the list.
        nodes = detail.get("nodes") or ([row.peer] if row.peer else [])
        node = row.peer
        if not node and nodes:
            node = nodes[0]
        is_last = index == len(injections) - 1
        table.append(
            {
                "fault": row.cause,
                "kind": detail.get("fault"),
                "target": detail.get("target"),
                "node": node or None,
                "injected_us": row.time_us,
                "in_force_us": in_force.time_us if in_force else None,
                "in_force_until_us": detail_of(healed).get("in_force_until_us") if healed else None,
                "healed_us": healed.time_us if healed else None,
                # What happens after the next fault counts as an effect of the next fault.
                "until_us": trace.end_us if is_last else injections[index + 1].time_us,
                "groups": detail.get("groups", []),
                "partitions": detail.get("partitions", []),
                "nodes": nodes,
                "from_nodes": detail.get("from", []),
                "to_nodes": detail.get("to", []),
            }
        )
    return table


def _first_about(fault: str | None, rows: Sequence[TraceRow]) -> TraceRow | None:
    """Return the first row about a fault; None if there is none."""
    return next((row for row in rows if row.cause == fault), None)
