"""The table `metrics` in plain Python: the values of the servers' metrics.

From time to time, each server writes the values of all its metrics into one row METRICS of the
trace (a sample). The table has a row for each value. `pipeline.tables.metrics` computes the same
with Spark.
"""

from pipeline.in_memory.trace import TableRow, Trace, detail_of
from protocol.trace import TraceKind


def metrics_of(trace: Trace) -> list[TableRow]:
    """Return a row for each metric in each sample."""
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
