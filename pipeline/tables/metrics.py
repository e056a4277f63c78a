"""The table `metrics`: the values of the metrics of controllers and brokers, by Kafka's names.

From time to time, each node writes the values of all its metrics into one row METRICS of the trace
(a sample). If the node's process starts again, its metrics count from 0. So the table also has the
incarnation: how often the process had started before.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.trace import TraceKind


def metrics(events: DataFrame) -> DataFrame:
    """List each value in each sample.

    `events` has one row per event. Output grain: one row per run, node, incarnation, sample and
    metric of the sample. A sample whose JSON text cannot be read has no rows.
    Columns:
    - `run`, `node`, `incarnation`;
    - `sampled_us`: microseconds on the run's clock;
    - `metric`: Kafka's name. For a meter (a count of events with its rates), the attribute follows
      the name (`IsrShrinksPerSec.Count`). For a purgatory (the requests that wait for something),
      the operation precedes the name (`Heartbeat.PurgatorySize`);
    - `value`: in the unit of the metric (docs/TABLES.md).

    Nulls: `value` if Kafka's value is NaN, for example before the first load.
    """
    return (
        of_kind(events, TraceKind.METRICS)
        .select(
            "run",
            "node",
            "incarnation",
            F.col("time_us").alias("sampled_us"),
            F.explode(F.from_json("detail", "map<string, double>")).alias("metric", "value"),
        )
        .select("run", "node", "incarnation", "sampled_us", "metric", "value")
    )
