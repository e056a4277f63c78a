"""The table `runs`: how many events each run has, when it became steady, and when it ended.

A run is in its steady state when all groups have all their members and partitions. The run injects
no fault before.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail
from protocol.trace import TraceKind
from protocol.trace_schema import RunStageDetail


def runs(events: DataFrame) -> DataFrame:
    """Summarize each run in one row.

    `events` has one row per event. Output grain: one row per run that has events.
    Columns:
    - `run`;
    - `events`: number of usable events; `nodes`: number of nodes that wrote them;
    - `steady_us`: when the run became steady;
    - `end_us`: when the run began to stop; in a run that broke off, the time of its last event;
    - `completed`: False if the run broke off.

    Times are microseconds on the run's clock.
    Nulls: `steady_us` if the run never became steady.
    """
    stage = F.when(
        F.col("kind") == TraceKind.RUN_STAGE.value,
        detail("stage", of=RunStageDetail).getField("stage"),
    )
    # To count the nodes of a run by the set of their names would take far longer. So the events are
    # first summed up by node. The result has a row for each node, and these rows are counted.
    by_node = (
        events.withColumn("stage", stage)
        .groupBy("run", "node")
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.min(F.when(F.col("stage") == "steady", F.col("time_us"))).alias("steady_us"),
            F.min(F.when(F.col("stage") == "stopping", F.col("time_us"))).alias("stopping_us"),
            F.max("time_us").alias("last_us"),
        )
    )
    by_run = by_node.groupBy("run").agg(
        F.sum("events").alias("events"),
        F.count("node").cast("int").alias("nodes"),
        F.min("steady_us").alias("steady_us"),
        F.min("stopping_us").alias("stopping_us"),
        F.max("last_us").alias("last_us"),
    )
    return by_run.select(
        "run",
        "events",
        "nodes",
        "steady_us",
        F.coalesce("stopping_us", "last_us").alias("end_us"),
        F.col("stopping_us").isNotNull().alias("completed"),
    )
