"""The table `metrics` in plain Python: sample by sample."""

from protocol.trace import TraceKind
from tests.support.oracle_trace import Trace, detail_of
from tests.support.trace_builder import TableRow


def metrics_of(trace: Trace) -> list[TableRow]:
    """Return each value of each sample."""
    return [
        {
            "node": row.node,
            "incarnation": row.incarnation,
            "sampled_us": row.time_us,
            "metric": name,
            "value": None if value is None else float(value),
        }
        for row in trace.of(TraceKind.METRICS)
        for name, value in detail_of(row).items()
    ]
