"""The table `rebalances`: each rebalance, who caused it, and how long it took."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.events import of_kind
from protocol.trace import TraceKind


def rebalances(events: DataFrame, faults: DataFrame) -> DataFrame:
    """List the rebalances that coordinators began.

    Input grain: one row per event; `faults`. Output grain: one row per run, group, broker and
    rebalance that it began.
    Columns: `run`, `group`, `broker` (the coordinator), `generation` (the one that ended), `member`
    and `cause` as the coordinator gave them; `fault`: the latest fault before it; moments in
    microseconds on the run's clock: `started_us`, `joined_us` (the next generation began),
    `stable_us` (its assignment is stored); `length_us`: microseconds from started to stable.
    Nulls: `fault` before the first fault (the group forms); `joined_us`, `stable_us` and
    `length_us` if another rebalance, the coordinator's end or the run's came first; `member` where
    no single member caused it.
    """
    kinds = (
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.ASSIGNMENT_STORED,
    )
    # Backwards, so that "the next of a kind" is the last one seen: linear in the rows.
    backwards = (
        Window.partitionBy("run", "node", "incarnation", "group")
        .orderBy(F.desc("seq"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    started = (
        of_kind(events, *kinds)
        .withColumn("restarted_us", _next(TraceKind.REBALANCE_STARTED).over(backwards))
        .withColumn("joined_us", _next(TraceKind.GENERATION_STARTED).over(backwards))
        .withColumn("stable_us", _next(TraceKind.ASSIGNMENT_STORED).over(backwards))
        .where(F.col("kind") == TraceKind.REBALANCE_STARTED.value)
    )
    before = F.broadcast(faults.select(F.col("run").alias("fault_run"), "fault", "injected_us"))
    due = (F.col("run") == F.col("fault_run")) & (F.col("injected_us") <= F.col("time_us"))
    rebalance = ("run", "node", "incarnation", "group", "seq")
    latest = Window.partitionBy(*rebalance).orderBy(F.desc("injected_us"), "fault")
    stable_us = _unless_restarted("stable_us")
    return (
        started.join(before, due, "left")
        .withColumn("nth", F.row_number().over(latest))
        .where(F.col("nth") == 1)
        .select(
            "run",
            "group",
            F.col("node").alias("broker"),
            "generation",
            "member",
            "cause",
            "fault",
            F.col("time_us").alias("started_us"),
            _unless_restarted("joined_us").alias("joined_us"),
            stable_us.alias("stable_us"),
            (stable_us - F.col("time_us")).alias("length_us"),
        )
    )


def _next(kind: TraceKind) -> Column:
    return F.last(F.when(F.col("kind") == kind.value, F.col("time_us")), ignorenulls=True)


def _unless_restarted(moment: str) -> Column:
    """Return the moment if it comes before the group's next rebalance on this coordinator."""
    at_us, restarted_us = F.col(moment), F.col("restarted_us")
    return F.when(restarted_us.isNull() | (at_us < restarted_us), at_us)
