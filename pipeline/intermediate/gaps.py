"""Gaps: times without a commit, without processing, or without a coordinator.

Each function lists the gaps of one kind of subject, over the whole run:

- `commit_gaps`: between two acknowledged commits of a consumer;
- `processing_gaps`: between the work on two batches of a data partition;
- `coordinator_holes`: between two active coordinators of an offsets partition (a partition of
  `__consumer_offsets`).

The table `availability` then picks one of these gaps for each fault and subject.

Example: a consumer had a commit acknowledged at 10.0 s and the next commit at 14.2 s. This gap
lasts from `before_us` (10.0 s) to `after_us` (14.2 s). The gap after the consumer's last commit has
no `after_us` (null): it is open. It then matters whether the consumer tried to commit again. If the
consumer did, `pending_us` is when it first tried. If `pending_us` is null, the consumer just had
nothing more to commit.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.repeats import begun_us
from protocol.api import Api
from protocol.trace import TraceKind

_COMMIT_APIS = [
    api.label for api in (Api.OFFSET_COMMIT, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT)
]
"""Requests with which a member begins to commit offsets, without or within a transaction."""


def commit_gaps(events: DataFrame) -> DataFrame:
    """Return the gaps between acknowledged commits of each consumer.

    Output grain: one row per run, group, consumer and acknowledged commit; a commit of several
    partitions is one row.
    Columns:
    - `run`, `group`, `subject` (the consumer's node);
    - `before_us`, `after_us`: when this commit and the next commit were acknowledged, in
      microseconds on the run's clock;
    - `pending_us`: after the last commit, when the consumer first sent another commit, a commit
      failed, or the consumer gave its coordinator up (marked it unknown);
    - `after_peer`: the broker that acknowledged the next commit.

    Nulls: `after_us` and `after_peer` of the last commit; `pending_us` of all other commits, and of
    the last commit if no attempt to commit followed.
    """
    key = ("run", "group", "subject")
    consumer = F.col("node").alias("subject")
    acknowledged = (
        of_kind(events, TraceKind.OFFSETS_COMMITTED)
        # A commit of several partitions has a row for each partition, all with the same time and
        # broker. Here it becomes one row.
        .groupBy("run", "group", consumer, F.col("time_us").alias("before_us"))
        .agg(F.max("peer").alias("peer"))
    )
    by_time = Window.partitionBy(*key).orderBy("before_us")
    # A request counts only if it commits. Every row of the other two kinds counts.
    is_attempt = (F.col("kind") != TraceKind.REQUEST_SENT.value) | F.col("api").isin(_COMMIT_APIS)
    attempts = (
        of_kind(
            events,
            TraceKind.REQUEST_SENT,
            TraceKind.COMMIT_FAILED,
            TraceKind.COORDINATOR_UNKNOWN,
        )
        .where(is_attempt)
        .select("run", "group", consumer, F.col("time_us").alias("attempted_us"))
    )

    # Of the attempts after a consumer's last commit, only the first one matters.
    last_commits = acknowledged.groupBy(*key).agg(F.max("before_us").alias("last_us"))
    first_attempts = (
        attempts.join(last_commits, list(key))
        .where(F.col("attempted_us") > F.col("last_us"))
        .groupBy(*key)
        .agg(F.min("attempted_us").alias("attempted_us"))
    )
    after_us = F.lead("before_us").over(by_time)
    return acknowledged.join(first_attempts, list(key), "left").select(
        *key,
        "before_us",
        after_us.alias("after_us"),
        F.lead("peer").over(by_time).alias("after_peer"),
        F.when(after_us.isNull(), F.col("attempted_us")).alias("pending_us"),
    )


def processing_gaps(events: DataFrame) -> DataFrame:
    """Return the gaps between the batches that members processed of each partition.

    Output grain: one row per run, group, partition and moment at which a member finished a batch.
    Columns: as in `commit_gaps`, without `after_peer`. `subject` is the partition.
    - `before_us`: when the batch was finished;
    - `after_us`: when the work on the next batch began. If two members work on the partition, the
      work may have begun before `before_us`. Then there was no gap, and `after_us` is equal to
      `before_us`;
    - `pending_us`: after the last batch, when the first record was produced that no member read.
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

    # `last` is the highest offset that the group consumed. `waiting_us` is when the first batch
    # with a higher offset was produced.
    reached = consumed.groupBy(*key).agg(F.max("last").alias("last"))
    waiting = (
        produced.join(reached, ["run", "subject"])
        .where(F.col("newest") > F.col("last"))
        .groupBy(*key)
        .agg(F.min("produced_us").alias("waiting_us"))
    )
    # When the work on any later batch first began. The rows are in the order in which batches were
    # finished. If two members work at the same time, the batch that was finished later can have
    # been begun earlier. So it is not enough to look at the next batch.
    later = Window.partitionBy(*key).orderBy("before_us").rowsBetween(1, Window.unboundedFollowing)
    next_begun_us = F.min("begun_us").over(later)
    # After the last batch, `next_begun_us` is null, and the gap is open. `greatest` alone would
    # ignore the null and return `before_us`.
    after_us = F.when(next_begun_us.isNotNull(), F.greatest("before_us", next_begun_us))
    # Batches that were finished at the same moment become one row.
    moments = consumed.groupBy(*key, "before_us").agg(F.min("begun_us").alias("begun_us"))
    return moments.join(waiting, list(key), "left").select(
        *key,
        "before_us",
        after_us.alias("after_us"),
        F.when(after_us.isNull(), F.col("waiting_us")).alias("pending_us"),
    )


def coordinator_holes(tenures: DataFrame, runs: DataFrame) -> DataFrame:
    """Return the times in which an offsets partition had no active coordinator.

    Output grain: one row per run, partition and time without a coordinator after the partition's
    first tenure. Columns: `run`, `partition`; `before_us`: when all earlier tenures had ended;
    `after_us`: when the next tenure began. Nulls: `after_us` if no tenure followed before the run's
    end.
    """
    # A tenure is a time in which a broker was the active coordinator. Tenures can overlap, so a
    # time without a coordinator begins only when all earlier tenures have ended.
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
    # If the last tenure ended before the run, the partition had no coordinator until the run's end.
    at_the_end = (
        tenures.groupBy("run", "partition")
        .agg(F.max("end_us").alias("before_us"))
        .join(F.broadcast(runs.select("run", "end_us")), "run")
        .where(F.col("before_us") < F.col("end_us"))
        .select("run", "partition", "before_us", F.lit(None).cast("long").alias("after_us"))
    )
    return between.unionByName(at_the_end)
