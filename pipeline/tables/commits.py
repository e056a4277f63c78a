"""The table `commits`: how many commits of each member succeeded, and how many failed, and why."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.tables.faults import with_latest_fault
from protocol.trace import TraceKind

ACKNOWLEDGED = "NONE"
"""The `error` of a commit that succeeded."""


def commits(events: DataFrame, faults: DataFrame) -> DataFrame:
    """Count the commits of each member by fault, coordinator and error.

    `events` has one row per event; `faults` is the table. Output grain: one row per run, fault,
    group, member, coordinator and error.
    Columns:
    - `run`, `group`;
    - `fault`: the latest fault before the commits had their outcome;
    - `consumer`: the member's node;
    - `coordinator`: the broker to which the commit was sent;
    - `error`: Kafka's name; NONE for an acknowledged commit, DISCONNECTED or TIMED_OUT if no answer
      came;
    - `commits`: the number of commits with this outcome; a commit of several partitions counts
      once;
    - `first_us`, `last_us`: when the first and the last of these commits had their outcome, in
      microseconds on the run's clock.

    Nulls: `fault` before the first fault; `coordinator` if the commit never left the member.
    """
    outcomes = (
        of_kind(events, TraceKind.OFFSETS_COMMITTED, TraceKind.COMMIT_FAILED)
        # A commit of several partitions has a row for each partition, all with the same time. If
        # one of the partitions failed, the commit failed. The error of an acknowledged partition is
        # "" here, so `max` picks the error of a failed partition. If there are several errors, it
        # picks the last of them in alphabetical order.
        .groupBy("run", "group", "node", "incarnation", "time_us", "peer")
        .agg(F.max(F.coalesce("error", F.lit(""))).alias("worst"))
        .withColumn("error", F.coalesce(F.nullif("worst", F.lit("")), F.lit(ACKNOWLEDGED)))
    )
    return (
        with_latest_fault(outcomes, faults, "time_us")
        .groupBy("run", "fault", "group", "node", "peer", "error")
        .agg(
            F.count("*").alias("commits"),
            F.min("time_us").alias("first_us"),
            F.max("time_us").alias("last_us"),
        )
        .select(
            "run",
            "fault",
            "group",
            F.col("node").alias("consumer"),
            F.col("peer").alias("coordinator"),
            "error",
            "commits",
            "first_us",
            "last_us",
        )
    )
