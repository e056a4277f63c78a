"""Gaps between what a subject did, each between two moments. No table of its own.

A gap at the end of the trace is open: `after_us` is null. It counts only with `pending_us`, since
when the subject had asked in vain; otherwise it merely had nothing more to do.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.repeats import begun_us
from protocol.api import Api
from protocol.trace import TraceKind

_ASKING = [key.label for key in (Api.OFFSET_COMMIT, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT)]
"""The requests with which a member begins a commit, or the commit of a transaction."""


def commit_gaps(events: DataFrame) -> DataFrame:
    """Return the time between acknowledged commits of each consumer.

    Output grain: one row per run, group, consumer and acknowledged commit (its rows per partition
    taken as one). Columns: `run`, `group`, `subject` (the consumer's node), `before_us`,
    `after_us`, `after_peer` (who acknowledged the later one), `pending_us` (of the open gap: the
    first commit asked for, failed, or coordinator given up since); microseconds on the run's clock.
    Nulls: `after_us` and `after_peer` of the last one; `pending_us` unless open and pending.
    """
    key = ("run", "group", "subject")
    consumer = F.col("node").alias("subject")
    acknowledged = (
        of_kind(events, TraceKind.OFFSETS_COMMITTED)
        .groupBy("run", "group", consumer, F.col("time_us").alias("before_us"))
        .agg(F.max("peer").alias("peer"))
    )
    then = Window.partitionBy(*key).orderBy("before_us")
    asked_for = (F.col("kind") != TraceKind.REQUEST_SENT.value) | F.col("api").isin(_ASKING)
    asked = (
        of_kind(
            events,
            TraceKind.REQUEST_SENT,
            TraceKind.COMMIT_FAILED,
            TraceKind.COORDINATOR_UNKNOWN,
        )
        .where(asked_for)
        .select("run", "group", consumer, F.col("time_us").alias("asked_us"))
    )
    last = acknowledged.groupBy(*key).agg(F.max("before_us").alias("last_us"))
    in_vain = (
        asked.join(last, list(key))
        .where(F.col("asked_us") > F.col("last_us"))
        .groupBy(*key)
        .agg(F.min("asked_us").alias("asked_us"))
    )
    after = F.lead("before_us").over(then)
    return acknowledged.join(in_vain, list(key), "left").select(
        *key,
        "before_us",
        after.alias("after_us"),
        F.lead("peer").over(then).alias("after_peer"),
        F.when(after.isNull(), F.col("asked_us")).alias("pending_us"),
    )


def processing_gaps(events: DataFrame) -> DataFrame:
    """Return the time between batches of records consumed from each partition.

    Output grain: one row per run, group, partition and moment at which a member was done with a
    batch. Columns: as in `commit_gaps`, where `subject` is the partition, `after_us` when work on
    the next batch began (`before_us`, if it had begun already) and `pending_us` when the first
    record was produced that nobody consumed; `after_peer` is missing.
    """
    key = ("run", "group", "subject")
    partition = F.col("partition").alias("subject")
    consumed = of_kind(events, TraceKind.RECORDS_CONSUMED).select(
        "run",
        "group",
        partition,
        F.col("time_us").alias("before_us"),
        begun_us().alias("begun_us"),
        F.coalesce("span.last", "offset").alias("last"),
    )
    produced = of_kind(events, TraceKind.RECORDS_PRODUCED).select(
        "run",
        partition,
        F.col("time_us").alias("produced_us"),
        (F.col("offset") + F.coalesce("span.count", F.lit(1)) - 1).alias("newest"),
    )
    reached = consumed.groupBy(*key).agg(F.max("last").alias("last"))
    waiting = (
        produced.join(reached, ["run", "subject"])
        .where(F.col("newest") > F.col("last"))
        .groupBy(*key)
        .agg(F.min("produced_us").alias("waiting_us"))
    )
    later = Window.partitionBy(*key).orderBy("before_us").rowsBetween(1, Window.unboundedFollowing)
    after = F.greatest("before_us", F.min("begun_us").over(later))
    after = F.when(F.min("begun_us").over(later).isNotNull(), after)
    moments = consumed.groupBy(*key, "before_us").agg(F.min("begun_us").alias("begun_us"))
    return moments.join(waiting, list(key), "left").select(
        *key,
        "before_us",
        after.alias("after_us"),
        F.when(after.isNull(), F.col("waiting_us")).alias("pending_us"),
    )


def coordinator_holes(tenures: DataFrame, runs: DataFrame) -> DataFrame:
    """Return the times in which an offsets partition had no active coordinator.

    Output grain: one row per run, partition and hole after its first tenure. Columns: `run`,
    `partition`, `before_us` (the last tenure so far ended), `after_us` (the next one began).
    Nulls: `after_us` if none followed before the run's end.
    """
    so_far = (
        Window.partitionBy("run", "partition")
        .orderBy("start_us", "leader_epoch")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    between = tenures.select(
        "run",
        "partition",
        F.max("end_us").over(so_far).alias("before_us"),
        F.col("start_us").alias("after_us"),
    ).where(F.col("after_us") > F.col("before_us"))
    at_the_end = (
        tenures.groupBy("run", "partition")
        .agg(F.max("end_us").alias("before_us"))
        .join(F.broadcast(runs.select("run", "end_us")), "run")
        .where(F.col("before_us") < F.col("end_us"))
        .select("run", "partition", "before_us", F.lit(None).cast("long").alias("after_us"))
    )
    return between.unionByName(at_the_end)
