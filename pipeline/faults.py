"""The table `faults`: what was broken, when, and what it hit."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.events import detail, of_kind
from protocol.trace import TraceKind

_DETAIL = "fault string, target string, pid long, groups array<string>, partitions array<string>"


def faults(events: DataFrame, runs: DataFrame) -> DataFrame:
    """List the faults.

    Input grain: one row per event; `runs`. Output grain: one row per run and fault (id).
    Columns: `run`, `fault` (id in the plan), `kind` (crash ...), `target` (the role that was
    resolved), `node` (what it hit), `pid` (of the process, on Ray); `injected_us`, `healed_us` and
    `until_us` (the next fault, or the run's end) in microseconds on the run's clock; `groups`,
    `partitions`: the blast radius as the run recorded it.
    Nulls: `healed_us` if the run broke off before; `node`, `pid`, `target` where the fault has
    none; `groups` and `partitions` are empty where nothing was recorded.
    """
    first = Window.partitionBy("run", "fault").orderBy("time_us", "seq")
    injected = (
        of_kind(events, TraceKind.FAULT_INJECTED)
        .withColumn("fault", F.coalesce("cause", F.lit("fault")))
        .withColumn("nth", F.row_number().over(first))
        .where(F.col("nth") == 1)
        .withColumn("said", detail(_DETAIL))
    )
    healed = (
        of_kind(events, TraceKind.FAULT_HEALED)
        .groupBy("run", F.coalesce("cause", F.lit("fault")).alias("fault"))
        .agg(F.min("time_us").alias("healed_us"))
    )
    in_order = Window.partitionBy("run").orderBy("time_us", "seq")
    none = F.array().cast("array<string>")
    return (
        injected.join(healed, ["run", "fault"], "left")
        .join(F.broadcast(runs.select("run", "end_us")), "run", "left")
        .select(
            "run",
            "fault",
            F.col("said.fault").alias("kind"),
            F.col("said.target").alias("target"),
            F.nullif("peer", F.lit("")).alias("node"),
            F.col("said.pid").alias("pid"),
            F.col("time_us").alias("injected_us"),
            "healed_us",
            F.coalesce(F.lead("time_us").over(in_order), "end_us").alias("until_us"),
            F.coalesce("said.groups", none).alias("groups"),
            F.coalesce("said.partitions", none).alias("partitions"),
        )
    )
