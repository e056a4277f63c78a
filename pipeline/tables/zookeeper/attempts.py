"""The table `zookeeper_attempts`: how consumers on ZooKeeper tried to get their partitions.

Such a consumer has no coordinator, and rebalances by itself, in one or more attempts. In an
attempt, the consumer does four things:

1. It gives up the partitions that it has.
2. It reads a *view*: the list of the members that its group has now.
3. It computes a *plan*: its own share of the partitions.
4. It claims each partition of the plan. If another member still owns the partition, the claim
   fails, which is called a conflict.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import (
    PartitionsDetail,
    ZooKeeperAttemptEndedDetail,
    ZooKeeperGaveUpDetail,
    ZooKeeperViewDetail,
)

_LIFE = ("run", "node", "incarnation")
"""The columns that name a consumer, from one start of its process to its end (an incarnation)."""
_ATTEMPT = (*_LIFE, "number")
"""The columns that name an attempt. `number` is the number of the attempt in its incarnation."""
_GIVEN_UP = (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST)
"""Kinds of rows that list partitions which a consumer gave up."""
_STEPS = (
    TraceKind.ZOOKEEPER_VIEW,
    TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
    TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
    *_GIVEN_UP,
)
"""Kinds of rows about the steps of an attempt."""


def zookeeper_attempts(events: DataFrame) -> DataFrame:
    """List the attempts of consumers on ZooKeeper to get their share of the partitions.

    `events` has one row per event. Output grain: one row per run, consumer, incarnation and attempt
    of a rebalance.
    Columns:
    - `run`, `group`, `consumer` (its node), `incarnation`, `member` (its consumer id);
    - `attempt`: the number of the attempt in its rebalance, from 0;
    - `started_us`, `view_us` (the consumer had read its view and computed its plan), `ended_us`: in
      microseconds on the run's clock;
    - `view`: the consumer ids that the consumer read; `plan`: the partitions that it computed as
      its share;
    - `given_up`: how many partitions the consumer gave up;
    - `conflicts`: how many partitions of the plan still had another owner; `disputed`: the names of
      these partitions, sorted;
    - `outcome`: `done`, `no broker` (without a broker, the consumer reads no view), `conflict`,
      `exception`, or `shut down` if the consumer had to stop; `exception`: the exception that
      ended the attempt;
    - `gave_up`: null, unless this was the last attempt of a rebalance that failed. Then the
      consumer throws ConsumerRebalanceFailedException, and the column tells what it was doing at
      this time: `starting`, `running` or `new session`. The program that uses the consumer gets the
      exception only in the case `starting`.

    Nulls: `view_us`, `view`, `plan` if the attempt ended before the view; `ended_us`, `outcome` if
    the attempt never ended; `exception` without an exception; `gave_up` if the consumer did not
    give up after the attempt.
    """
    numbered = _numbered(events)
    started = numbered.where(_is(TraceKind.ZOOKEEPER_ATTEMPT_STARTED)).select(
        *_ATTEMPT, "group", "member", "decoded.attempt", F.col("time_us").alias("started_us")
    )
    return (
        started.join(_steps(numbered), list(_ATTEMPT), "left")
        .join(_gave_up(numbered), list(_ATTEMPT), "left")
        .select(
            "run",
            "group",
            F.col("node").alias("consumer"),
            "incarnation",
            "member",
            "attempt",
            "started_us",
            "view_us",
            "view",
            "plan",
            F.coalesce("given_up", F.lit(0)).alias("given_up"),
            F.coalesce("conflicts", F.lit(0)).alias("conflicts"),
            F.coalesce("disputed", F.array().cast("array<string>")).alias("disputed"),
            "ended_us",
            "outcome",
            "exception",
            "gave_up",
        )
    )


def _numbered(events: DataFrame) -> DataFrame:
    """Return the rows of consumers, each with the number of the last attempt that began (`number`).

    A consumer also writes rows between two attempts. `is_within` is true for the rows from the
    beginning of an attempt to its end, and false for the rows after the end.
    """
    in_order = Window.partitionBy(*_LIFE).orderBy("seq")
    starts = F.when(_is(TraceKind.ZOOKEEPER_ATTEMPT_STARTED), True)
    ends = F.when(_is(TraceKind.ZOOKEEPER_ATTEMPT_ENDED), True)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    decoded = detail(
        "attempt",
        "members",
        "partitions",
        "done",
        "during",
        of=(
            ZooKeeperAttemptEndedDetail,
            ZooKeeperViewDetail,
            PartitionsDetail,
            ZooKeeperGaveUpDetail,
        ),
    )
    return (
        of_kind(
            events,
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED,
            TraceKind.ZOOKEEPER_GAVE_UP,
            *_STEPS,
        )
        # `F.count` counts the values that are not null.
        .withColumn("number", F.count(starts).over(so_far))
        # If more attempts have started than ended, an attempt is still going on.
        .withColumn("is_within", F.col("number") > F.count(ends).over(before))
        .where(F.col("number") > 0)
        .withColumn("decoded", decoded)
    )


def _steps(numbered: DataFrame) -> DataFrame:
    """One row per attempt that has a row after its beginning, with the results of its steps."""
    is_view = _is(TraceKind.ZOOKEEPER_VIEW)
    is_end = _is(TraceKind.ZOOKEEPER_ATTEMPT_ENDED)
    is_conflict = _is(TraceKind.ZOOKEEPER_CLAIM_CONFLICT)
    gives_up_partitions = F.col("kind").isin([kind.value for kind in _GIVEN_UP])
    attempt_rows = numbered.where(F.col("is_within") & ~_is(TraceKind.ZOOKEEPER_GAVE_UP))
    summed = attempt_rows.groupBy(*_ATTEMPT).agg(
        F.min(F.when(is_view, F.col("time_us"))).alias("view_us"),
        F.min_by("decoded.members", F.when(is_view, F.col("seq"))).alias("view"),
        F.min_by("decoded.partitions", F.when(is_view, F.col("seq"))).alias("plan"),
        F.sum(F.when(gives_up_partitions, F.size("decoded.partitions"))).alias("given_up"),
        F.count_if(is_conflict).alias("conflicts"),
        F.sort_array(F.collect_list(F.when(is_conflict, F.col("partition")))).alias("disputed"),
        F.min(F.when(is_end, F.col("time_us"))).alias("ended_us"),
        F.max(F.when(is_end, F.col("decoded.done"))).alias("done"),
        F.max(F.when(is_end, F.col("cause_text"))).alias("exception"),
    )
    # The order of the conditions matters, for two reasons:
    # - Without a broker, an attempt is `done`, but has no view.
    # - An attempt that was ended by an exception may have had conflicts before.
    has_no_view = F.col("view_us").isNull()
    outcome = (
        F.when(F.col("ended_us").isNull(), None)
        .when(F.col("done") & has_no_view, "no broker")
        .when(F.col("done"), "done")
        .when(F.col("exception").isNotNull(), "exception")
        .when(F.col("conflicts") > 0, "conflict")
        .otherwise("shut down")
    )
    return summed.withColumn("outcome", outcome)


def _gave_up(numbered: DataFrame) -> DataFrame:
    """One row per attempt after which the consumer gave up: what it was doing (`gave_up`)."""
    return (
        numbered.where(_is(TraceKind.ZOOKEEPER_GAVE_UP))
        .groupBy(*_ATTEMPT)
        .agg(F.min_by("decoded.during", "seq").alias("gave_up"))
    )


def _is(kind: TraceKind) -> Column:
    """Return whether a row is of a kind."""
    return F.col("kind") == kind.value
