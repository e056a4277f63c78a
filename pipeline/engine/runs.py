"""The table `runs`: how many events of each run were read, and the bounds of its time.

The steady state of a run is the state with all groups, members and partitions complete; faults
begin only after the run has reached it.
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
    - `steady_us`: time at which the run reached the steady state;
    - `end_us`: time at which the run began to stop; in a run that broke off, time of its last
      event;
    - `completed`: False if the run broke off.

    Times are microseconds on the run's clock.
    Nulls: `steady_us` if the run never became steady.
    """
    stage = F.when(
        F.col("kind") == TraceKind.RUN_STAGE.value,
        detail("stage", of=RunStageDetail).getField("stage"),
    )
    # First one row per node, then one per run, whose number of nodes is the number of these rows.
    # Collecting the set of the nodes' names of each run would take far longer.
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
