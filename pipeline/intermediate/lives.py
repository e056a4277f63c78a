"""When nodes died, stood still or were cut off. No table of its own."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.trace import TraceKind

PAUSED = "paused"
CUT = "cut"
_SILENCING_LINK_FAULTS = ("cut", "clog")
"""Link faults under which nothing gets through; `slow` and `reset` keep nobody apart."""


def deaths(events: DataFrame) -> DataFrame:
    """List the ends of processes; a start of a newer incarnation proves that the older ended.

    Output grain: one row per end, or proof of one. Columns: `run`, `node`, `died_us` (microseconds
    on the run's clock), `died_by` (killed | stopped), `successor`: every incarnation before it is
    dead. Nulls: `successor` where the end itself was seen, whichever incarnation lived then.
    """
    rows = of_kind(events, TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED, TraceKind.NODE_STARTED)
    started = F.col("kind") == TraceKind.NODE_STARTED.value
    stopped = F.col("kind") == TraceKind.NODE_STOPPED.value
    return rows.select(
        "run",
        # NODE_KILLED is written by the run about its victim, the others by the node itself.
        F.when(started | stopped, F.col("node")).otherwise(F.col("peer")).alias("node"),
        F.col("time_us").alias("died_us"),
        F.when(stopped, F.lit("stopped")).otherwise(F.lit("killed")).alias("died_by"),
        F.when(started, F.col("incarnation")).alias("successor"),
    )


def impairments(events: DataFrame, faults: DataFrame, runs: DataFrame) -> DataFrame:
    """List the intervals in which a node was paused, or cut off from others.

    Input grain: one row per event; `faults`; `runs`. Output grain: one row per run, node, kind and
    interval; intervals of one node and kind share no time.
    Columns: `run`, `node`, `impairment` (paused | cut); `impaired_from_us`, `impaired_to_us` in
    microseconds on the run's clock, the run's end where nothing ended it before. Nulls: none.
    """
    ends = F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us")))
    found = _pauses(events).unionByName(_cuts(faults)).join(ends, "run")
    closed = found.withColumn(
        "to_us", F.greatest("from_us", F.least(F.coalesce("to_us", "run_end_us"), "run_end_us"))
    )
    # What touches or overlaps becomes one interval: a new one begins after all before have ended.
    in_order = Window.partitionBy("run", "node", "impairment").orderBy("from_us", "to_us")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = F.coalesce(F.col("from_us") > F.max("to_us").over(before), F.lit(True))
    return (
        closed.withColumn("begins", begins.cast("int"))
        .withColumn("island", F.sum("begins").over(so_far))
        .groupBy("run", "node", "impairment", "island")
        .agg(F.min("from_us").alias("from_us"), F.max("to_us").alias("to_us"))
        .select(
            "run",
            "node",
            "impairment",
            F.col("from_us").alias("impaired_from_us"),
            F.col("to_us").alias("impaired_to_us"),
        )
    )


def _pauses(events: DataFrame) -> DataFrame:
    """One row per pause of a node; `to_us` is null while nothing ended it."""
    paused = F.col("kind") == TraceKind.NODE_PAUSED.value
    started = F.col("kind") == TraceKind.NODE_STARTED.value
    victim = F.when(started, F.col("node")).otherwise(F.col("peer"))
    then = Window.partitionBy("run", "victim").orderBy("time_us", "seq")
    return (
        of_kind(
            events,
            TraceKind.NODE_PAUSED,
            TraceKind.NODE_RESUMED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STARTED,
        )
        .withColumn("victim", victim)
        .withColumn("to_us", F.lead("time_us").over(then))
        .where(paused)
        .select(
            "run",
            F.col("victim").alias("node"),
            F.lit(PAUSED).alias("impairment"),
            F.col("time_us").alias("from_us"),
            "to_us",
        )
    )


def _cuts(faults: DataFrame) -> DataFrame:
    """One row per node on the `from` side of a silencing link fault (null `to_us`: not healed).

    Both sides hear nothing of each other; the one that the experiment names first is cut off.
    """
    side = F.when(F.size("from_nodes") > 0, F.col("from_nodes")).otherwise(F.col("nodes"))
    return faults.where(F.col("kind").isin(list(_SILENCING_LINK_FAULTS))).select(
        "run",
        F.explode(side).alias("node"),
        F.lit(CUT).alias("impairment"),
        F.coalesce("in_force_us", "injected_us").alias("from_us"),
        F.coalesce("in_force_until_us", "healed_us").alias("to_us"),
    )


def impaired_us(intervals: DataFrame, impaired: DataFrame, *, node: str) -> DataFrame:
    """Add to intervals for how long of each its node was paused, and cut off.

    Input grain: any rows with `run`, the column named by `node`, `from_us` and `to_us`
    (microseconds on the run's clock); `impairments`. Output grain: the same rows.
    Columns: those of `intervals`; `paused_us`, `cut_us` (microseconds); `paused_from_us`,
    `paused_to_us`, `cut_from_us`, `cut_to_us`: first and last moment of it in the interval.
    Nulls: the moments, where `paused_us` or `cut_us` is 0.
    """
    key = ["run", node, "from_us", "to_us"]
    shared = F.least("to_us", "impaired_to_us") - F.greatest("from_us", "impaired_from_us")
    met = (
        intervals.select(*key)
        .distinct()
        .join(F.broadcast(impaired.withColumnRenamed("node", node)), ["run", node])
        .where(shared > 0)
        .groupBy(*key)
        .agg(*_bounds(PAUSED, shared), *_bounds(CUT, shared))
    )
    return (
        intervals.join(F.broadcast(met), key, "left")
        .withColumns(
            {
                "paused_us": F.coalesce("paused", F.lit(0)).cast("long"),
                "cut_us": F.coalesce("cut", F.lit(0)).cast("long"),
            }
        )
        .drop("paused", "cut")
    )


def _bounds(impairment: str, shared: Column) -> tuple[Column, Column, Column]:
    """Return for how long an impairment shares time with an interval, from when and to when."""
    is_it = F.col("impairment") == impairment
    return (
        F.sum(F.when(is_it, shared)).alias(impairment),
        F.min(F.when(is_it, F.greatest("from_us", "impaired_from_us"))).alias(
            f"{impairment}_from_us"
        ),
        F.max(F.when(is_it, F.least("to_us", "impaired_to_us"))).alias(f"{impairment}_to_us"),
    )
