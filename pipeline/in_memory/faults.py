"""The table `faults` in plain Python."""

from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def faults_of(trace: Trace) -> list[TableRow]:
    """Return the faults that hit anybody, by time; those of one moment by their ids."""
    missed = {row.cause for row in trace.of(TraceKind.FAULT_MISSED)}
    hits = sorted(
        (row for row in trace.of(TraceKind.FAULT_INJECTED) if row.cause not in missed),
        key=lambda row: (row.time_us, row.cause),
    )
    found = []
    for place, row in enumerate(hits):
        said = detail_of(row)
        in_force = _first_of(trace, TraceKind.FAULT_IN_FORCE, row)
        healed = _first_of(trace, TraceKind.FAULT_HEALED, row)
        nodes = said.get("nodes") or ([row.peer] if row.peer else [])
        is_last = place == len(hits) - 1
        found.append(
            {
                "fault": row.cause,
                "kind": said.get("fault"),
                "target": said.get("target"),
                "node": row.peer or (nodes[0] if nodes else None),
                "injected_us": row.time_us,
                "in_force_us": in_force.time_us if in_force else None,
                "in_force_until_us": detail_of(healed).get("in_force_until_us") if healed else None,
                "healed_us": healed.time_us if healed else None,
                "until_us": trace.end_us if is_last else hits[place + 1].time_us,
                "groups": said.get("groups", []),
                "partitions": said.get("partitions", []),
                "nodes": nodes,
                "from_nodes": said.get("from", []),
                "to_nodes": said.get("to", []),
            }
        )
    return found


def _first_of(trace: Trace, kind: TraceKind, injected: TraceRow) -> TraceRow | None:
    rows = [row for row in trace.of(kind) if row.cause == injected.cause]
    return rows[0] if rows else None
