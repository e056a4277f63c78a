"""When did nodes die, and when were they paused or cut off from others?

The process of a node can be killed and started again. Each time from a start to an end is an
incarnation (or life) of the node. A pause and a cut, in which the network separates the node from
others, are called impairments here: the node lives, but cannot do its work.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.trace import TraceKind

PAUSED = "paused"
CUT = "cut"
_SILENCING_LINK_FAULTS = ("cut", "clog")
"""Faults of network links that keep all messages from arriving. There are also `slow` and `reset`,
under which messages still arrive.
"""


def deaths(events: DataFrame) -> DataFrame:
    """List the rows by which we know that a process has ended.

    These are the rows about the ends of processes. Such a row can be missing, for example if the
    machine was lost. But if the node later starts again, its earlier processes have ended. So the
    rows about starts are listed, too.
    Output grain: one row per row of the trace about an end or a start of a process.
    Columns:
    - `run`, `node`;
    - `died_us`: the time of the row, in microseconds on the run's clock;
    - `died_by`: `killed` or `stopped`;
    - `successor`: of a start, the number of the incarnation that began. All incarnations with a
      lower number are dead.

    Nulls: `successor` of a row about an end. Such a row does not tell which incarnation ended.
    """
    rows = of_kind(events, TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED, TraceKind.NODE_STARTED)
    started = F.col("kind") == TraceKind.NODE_STARTED.value
    stopped = F.col("kind") == TraceKind.NODE_STOPPED.value
    return rows.select(
        "run",
        # A killed node can write nothing, so the driver (the process that conducts the run) writes
        # NODE_KILLED, with the node as `peer`.
        F.when(started | stopped, F.col("node")).otherwise(F.col("peer")).alias("node"),
        F.col("time_us").alias("died_us"),
        # A start counts as `killed`, because a process that stops in an orderly way writes a row
        # about its end.
        F.when(stopped, F.lit("stopped")).otherwise(F.lit("killed")).alias("died_by"),
        F.when(started, F.col("incarnation")).alias("successor"),
    )


def impairments(events: DataFrame, faults: DataFrame, runs: DataFrame) -> DataFrame:
    """List the intervals in which a node was paused, or cut off from others.

    `events` has one row per event; `faults` and `runs` are the tables. Output grain: one row per
    run, node, impairment and interval. Intervals of one node and impairment do not overlap.
    Columns: `run`, `node`, `impairment` (paused | cut); `impaired_from_us`, `impaired_to_us` in
    microseconds on the run's clock. An interval ends with the run at the latest. Nulls: none.
    """
    ends = F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us")))
    impaired = _pauses(events).unionByName(_cuts(faults)).join(ends, "run")
    # An interval without an end lasts until the run's end. An interval that begins after the run's
    # end gets the length 0 by `greatest`.
    closed = impaired.withColumn(
        "to_us", F.greatest("from_us", F.least(F.coalesce("to_us", "run_end_us"), "run_end_us"))
    )
    # Intervals that touch or overlap are joined: all of them get the same number `island`. A new
    # island begins where a `from_us` is greater than every `to_us` before it. The number counts how
    # many islands have begun.
    in_order = Window.partitionBy("run", "node", "impairment").orderBy("from_us", "to_us")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # The first interval of a node begins an island. Its comparison is null, because there is no
    # `to_us` before it, and `coalesce` turns the null into true.
    begins_island = F.coalesce(F.col("from_us") > F.max("to_us").over(before), F.lit(True))
    return (
        closed.withColumn("begins_island", begins_island.cast("int"))
        .withColumn("island", F.sum("begins_island").over(so_far))
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
    """One row per pause of a node; `to_us` is null if the pause did not end.

    A pause ends when the node resumes, is killed or starts again.
    """
    paused = F.col("kind") == TraceKind.NODE_PAUSED.value
    started = F.col("kind") == TraceKind.NODE_STARTED.value
    # A node itself writes NODE_STARTED. The driver writes the other rows, with the node as `peer`.
    victim = F.when(started, F.col("node")).otherwise(F.col("peer"))
    in_order = Window.partitionBy("run", "victim").orderBy("time_us", "seq")
    return (
        of_kind(
            events,
            TraceKind.NODE_PAUSED,
            TraceKind.NODE_RESUMED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STARTED,
        )
        .withColumn("victim", victim)
        .withColumn("to_us", F.lead("time_us").over(in_order))
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
    """One row per node and link fault that cuts the node off.

    Such a fault has two sides: the nodes that are cut off (`from_nodes`), and the nodes from which
    they are cut off (`to_nodes`). Nulls: `to_us` if the fault was not healed.
    """
    # If a fault names no sides, all its nodes are cut off.
    side = F.when(F.size("from_nodes") > 0, F.col("from_nodes")).otherwise(F.col("nodes"))
    return faults.where(F.col("kind").isin(list(_SILENCING_LINK_FAULTS))).select(
        "run",
        F.explode(side).alias("node"),
        F.lit(CUT).alias("impairment"),
        F.coalesce("in_force_us", "injected_us").alias("from_us"),
        F.coalesce("in_force_until_us", "healed_us").alias("to_us"),
    )


def impaired_us(intervals: DataFrame, impaired: DataFrame, *, node: str) -> DataFrame:
    """Add to each interval for how long its node was paused, and for how long it was cut off.

    `intervals` are any rows with `run`, `from_us`, `to_us` (microseconds on the run's clock) and a
    node; `node` is the name of the column with the node. `impaired` is the result of `impairments`.
    Output grain: the rows of `intervals`.
    Columns: those of `intervals`; `paused_us`, `cut_us` (microseconds); `paused_from_us`,
    `paused_to_us`, `cut_from_us`, `cut_to_us`: the first and the last moment in the interval at
    which the node was paused, or cut off.
    Nulls: `paused_from_us`, `paused_to_us` if `paused_us` is 0; `cut_from_us`, `cut_to_us` if
    `cut_us` is 0.
    """
    # Several intervals can have the same node and time, for example if a member owned several
    # partitions. `distinct` keeps one of them. Otherwise the join below would multiply the rows.
    key = ["run", node, "from_us", "to_us"]
    # The time that an interval and an impairment have in common.
    shared = F.least("to_us", "impaired_to_us") - F.greatest("from_us", "impaired_from_us")
    times = (
        intervals.select(*key)
        .distinct()
        .join(F.broadcast(impaired.withColumnRenamed("node", node)), ["run", node])
        .where(shared > 0)
        .groupBy(*key)
        .agg(*_bounds(PAUSED, shared), *_bounds(CUT, shared))
    )
    return (
        intervals.join(F.broadcast(times), key, "left")
        .withColumns(
            {
                "paused_us": F.coalesce("paused", F.lit(0)).cast("long"),
                "cut_us": F.coalesce("cut", F.lit(0)).cast("long"),
            }
        )
        .drop("paused", "cut")
    )


def _bounds(impairment: str, shared: Column) -> tuple[Column, Column, Column]:
    """Return three aggregations over all pauses (or all cuts) within an interval.

    They are the sum of the lengths, the first moment and the last moment. `shared` is the length of
    one pause or cut within the interval.
    """
    matches = F.col("impairment") == impairment
    return (
        F.sum(F.when(matches, shared)).alias(impairment),
        F.min(F.when(matches, F.greatest("from_us", "impaired_from_us"))).alias(
            f"{impairment}_from_us"
        ),
        F.max(F.when(matches, F.least("to_us", "impaired_to_us"))).alias(f"{impairment}_to_us"),
    )
