"""The table `zookeeper_attempts`: who computed which plan from which view, and what came of it."""

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
_ATTEMPT = (*_LIFE, "number")
_GIVEN_UP = (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST)
_STEPS = (
    TraceKind.ZOOKEEPER_VIEW,
    TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
    TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
    *_GIVEN_UP,
)


def zookeeper_attempts(events: DataFrame) -> DataFrame:
    """Follow each attempt of a consumer on ZooKeeper to own its share.

    Input grain: one row per event. Output grain: one row per run, consumer, incarnation and attempt
    of a rebalance.
    Columns: `run`, `group`, `consumer` (its node), `incarnation`, `member` (its consumer id),
    `attempt`: its number in its rebalance, from 0; in microseconds on the run's clock `started_us`,
    `view_us`: it had read all and computed, `ended_us`; `view`: consumer ids that it had read,
    `plan`: partitions that it computed for itself; `given_up`: partitions that it ceased to read in
    the attempt; `conflicts`: partitions of its plan that had an owner, `disputed`: these, sorted;
    `outcome`: `done`, `no broker` (it found none, and reads nothing), `conflict`, `exception` or
    `shut down`; `exception`: what ended it; `gave_up`: where ConsumerRebalanceFailedException went
    if this was the last attempt: `starting` (thrown to the program), `running` or `new session`.
    Nulls: `view_us`, `view`, `plan` if it did not come so far; `ended_us`, `outcome` if it never
    ended; `exception`, `gave_up` if there was none.
    """
    numbered = _numbered(events)
    started = numbered.where(_is(TraceKind.ZOOKEEPER_ATTEMPT_STARTED)).select(
        *_ATTEMPT, "group", "member", "said.attempt", F.col("time_us").alias("started_us")
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
    """Rows of consumers, with the number of the attempt that each belongs to, or follows."""
    until_here = Window.partitionBy(*_LIFE).orderBy("seq")
    starts = F.when(_is(TraceKind.ZOOKEEPER_ATTEMPT_STARTED), True)
    # Its own end belongs to the attempt.
    ends = F.when(_is(TraceKind.ZOOKEEPER_ATTEMPT_ENDED), True)
    so_far = until_here.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = until_here.rowsBetween(Window.unboundedPreceding, -1)
    said = detail(
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
        .withColumn("number", F.count(starts).over(so_far))
        .withColumn("is_within", F.col("number") > F.count(ends).over(before))
        .where(F.col("number") > 0)
        .withColumn("said", said)
    )


def _steps(numbered: DataFrame) -> DataFrame:
    """One row per attempt in which anything happened."""
    sees, ends = _is(TraceKind.ZOOKEEPER_VIEW), _is(TraceKind.ZOOKEEPER_ATTEMPT_ENDED)
    conflicts = _is(TraceKind.ZOOKEEPER_CLAIM_CONFLICT)
    gives_up = F.col("kind").isin([kind.value for kind in _GIVEN_UP])
    within = numbered.where(F.col("is_within") & ~_is(TraceKind.ZOOKEEPER_GAVE_UP))
    summed = within.groupBy(*_ATTEMPT).agg(
        F.min(F.when(sees, F.col("time_us"))).alias("view_us"),
        F.min_by("said.members", F.when(sees, F.col("seq"))).alias("view"),
        F.min_by("said.partitions", F.when(sees, F.col("seq"))).alias("plan"),
        F.sum(F.when(gives_up, F.size("said.partitions"))).alias("given_up"),
        F.count_if(conflicts).alias("conflicts"),
        F.sort_array(F.collect_list(F.when(conflicts, F.col("partition")))).alias("disputed"),
        F.min(F.when(ends, F.col("time_us"))).alias("ended_us"),
        F.max(F.when(ends, F.col("said.done"))).alias("done"),
        F.max(F.when(ends, F.col("cause_text"))).alias("exception"),
    )
    sees_none = F.col("view_us").isNull()
    outcome = (
        F.when(F.col("ended_us").isNull(), None)
        .when(F.col("done") & sees_none, "no broker")
        .when(F.col("done"), "done")
        .when(F.col("exception").isNotNull(), "exception")
        .when(F.col("conflicts") > 0, "conflict")
        .otherwise("shut down")
    )
    return summed.withColumn("outcome", outcome)


def _gave_up(numbered: DataFrame) -> DataFrame:
    """One row per attempt behind which a rebalance was given up."""
    return (
        numbered.where(_is(TraceKind.ZOOKEEPER_GAVE_UP))
        .groupBy(*_ATTEMPT)
        .agg(F.min_by("said.during", "seq").alias("gave_up"))
    )


def _is(kind: TraceKind) -> Column:
    return F.col("kind") == kind.value
