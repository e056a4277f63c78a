"""The table `metrics` in plain Python: one row for each metric of each sample.

A sample is a row METRICS of the trace, in which a server reports all its metrics at one moment.
`pipeline.tables.metrics` computes the same with Spark.
"""

from pipeline.in_memory.trace import TableRow, Trace, detail_of
from protocol.trace import TraceKind


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
