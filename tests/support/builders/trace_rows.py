"""Rows of a trace (a run's recorded events) that no run wrote."""

from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp


def trace_row(
    time_us: int = 0,
    node: str = "broker-0",
    kind: TraceKind = TraceKind.COMMIT_STORED,
    *,
    seq: int = 0,
    incarnation: int = 0,
    **columns: object,
) -> TraceRow:
    """Return a row of a node whose own clock agrees with that of the run."""
    return stamp(
        TraceEvent(kind=kind, **columns),  # type: ignore[arg-type]  # a test gives the right types
        run="run",
        time_us=time_us,
        node_time_us=time_us,
        seq=seq,
        node=node,
        incarnation=incarnation,
    )
