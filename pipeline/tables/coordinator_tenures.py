"""The table `coordinator_tenures`: which broker was a coordinator, and when.

A row is about one tenure: the time in which one broker serves the groups of one partition of
`__consumer_offsets` as the leader of one epoch. The tenure begins when the broker has loaded the
partition (has read its groups into memory). It ends when the broker unloads the partition, or dies.

An old coordinator that is paused, or cut off by the network, does not know that it was replaced,
and still serves its groups. So two tenures of a partition can overlap. To explain an overlap, a row
also tells how long the broker was paused or cut off.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.groups import in_offsets_topic
from pipeline.intermediate.lives import deaths, impaired_us
from protocol.trace import TraceKind

_KEY = ("run", "partition", "leader_epoch", "broker", "incarnation")
"""The columns that name a tenure. The process of a broker can be killed and started again. An
incarnation is the time from a start of the process to its end, counted from 0.
"""


def coordinator_tenures(events: DataFrame, spans: DataFrame, impairments: DataFrame) -> DataFrame:
    """Follow each coordinator from the end of its load to the end of its tenure.

    A tenure ends with the first of these events:

    - The run ends.
    - The broker unloads the partition, or loads it again in a newer epoch.
    - The broker dies.

    If several of these events have the same time, the event that comes first in the list counts. A
    load that ends after the run's end begins no tenure.

    `events` has one row per event, `spans` one row per tenure (`tenure_spans`), and `impairments`
    one row per time in which a node was paused or cut off.
    Output grain: one row per run, offsets partition, leader epoch and broker incarnation that
    served the partition. Usually an epoch of a partition has one row. It has more if a broker died
    and came back in the same epoch, or if two brokers serve in one epoch, which is an error.
    Columns:
    - `run`, `partition`, `leader_epoch`, `broker`, `incarnation`;
    - `start_us` (the broker became active), `end_us`: microseconds on the run's clock;
    - `end_reason`: unloaded, reloaded, killed, stopped, or run end;
    - `overlap_us`: microseconds in which another tenure of the partition overlaps with this tenure.
      If two other tenures overlap with it at the same time, this time counts twice;
    - `paused_us`, `cut_us`: microseconds of the tenure in which the broker was paused, or cut off
      from others;
    - `paused_from_us`, `paused_to_us`: the beginning of the first pause and the end of the last
      pause in the tenure; `cut_from_us`, `cut_to_us`: the same about cuts;
    - `commits`: number of commits that this broker acknowledged in this epoch;
    - `first_commit_us`, `last_commit_us`: moments of the first and the last of these commits,
      microseconds on the run's clock.

    Nulls: `first_commit_us`, `last_commit_us` if the broker acknowledged no commit; the moments of
    a pause or cut that did not happen.
    """
    other = spans.select(
        "run",
        "partition",
        F.struct("leader_epoch", "broker", "incarnation").alias("other"),
        F.col("start_us").alias("other_start_us"),
        F.col("end_us").alias("other_end_us"),
    )
    # The time that two tenures have in common; negative if they do not overlap.
    shared = F.least("end_us", "other_end_us") - F.greatest("start_us", "other_start_us")
    overlaps = (
        spans.join(other, ["run", "partition"])
        .where(F.struct("leader_epoch", "broker", "incarnation") != F.col("other"))
        .groupBy(*_KEY)
        .agg(F.sum(F.greatest(shared, F.lit(0))).alias("overlap_us"))
    )
    # `impaired_us` expects these names of the two columns.
    intervals = spans.withColumns({"from_us": F.col("start_us"), "to_us": F.col("end_us")})
    # These are left joins, because a tenure without overlaps or commits also has a row.
    return (
        impaired_us(intervals, impairments, node="broker")
        .join(overlaps, list(_KEY), "left")
        .join(_acknowledged(events), list(_KEY), "left")
        .select(
            *_KEY,
            "start_us",
            "end_us",
            "end_reason",
            F.coalesce("overlap_us", F.lit(0)).cast("long").alias("overlap_us"),
            "paused_us",
            "paused_from_us",
            "paused_to_us",
            "cut_us",
            "cut_from_us",
            "cut_to_us",
            F.coalesce("commits", F.lit(0)).alias("commits"),
            "first_commit_us",
            "last_commit_us",
        )
    )


def tenure_spans(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Find all tenures: when each began and ended, and how it ended.

    `events` has one row per event; `runs` is the table. Output grain: that of
    `coordinator_tenures`. Columns: `run`, `partition`, `leader_epoch`, `broker`, `incarnation`,
    `start_us`, `end_us`, `end_reason` as in that table. Nulls: none.
    """
    return _with_end(_loads(events), deaths(events), runs)


def _loads(events: DataFrame) -> DataFrame:
    """One row per completed load of a partition.

    `next_us` and `next_kind` tell when the same process next loaded or unloaded the partition.
    """
    steps = of_kind(events, TraceKind.LOAD_COMPLETED, TraceKind.UNLOAD_COMPLETED)
    in_order = Window.partitionBy("run", "node", "incarnation", "partition").orderBy("seq")
    return (
        steps.where(in_offsets_topic())
        .withColumn("next_us", F.lead("time_us").over(in_order))
        .withColumn("next_kind", F.lead("kind").over(in_order))
        .where(F.col("kind") == TraceKind.LOAD_COMPLETED.value)
        .select(
            "run",
            "partition",
            "leader_epoch",
            F.col("node").alias("broker"),
            "incarnation",
            F.col("time_us").alias("start_us"),
            "next_us",
            "next_kind",
        )
    )


def _with_end(tenures: DataFrame, died: DataFrame, runs: DataFrame) -> DataFrame:
    """Give each tenure the earliest of its possible ends."""
    is_after_start = F.col("died_us") >= F.col("start_us")
    # A row of `died` is about one of two events:
    # - The end of a process. Then `successor` is null.
    # - A start of the node, which proves that all older processes of the node have ended. Then
    #   `successor` is the incarnation that started.
    is_of_this_life = F.col("successor").isNull() | (F.col("successor") > F.col("incarnation"))
    is_its_death = is_after_start & is_of_this_life
    with_death = (
        tenures.join(F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us"))), "run")
        .where(F.col("start_us") <= F.col("run_end_us"))
        .join(died.withColumnRenamed("node", "broker"), ["run", "broker"], "left")
        .groupBy(*_KEY, "start_us", "next_us", "next_kind", "run_end_us")
        .agg(F.min(F.when(is_its_death, F.struct("died_us", "died_by"))).alias("death"))
    )
    unloaded = F.when(
        F.col("next_kind") == TraceKind.UNLOAD_COMPLETED.value, F.lit("unloaded")
    ).otherwise(F.lit("reloaded"))
    # `least` ignores nulls, and compares structs field by field. So the earliest end counts. If two
    # ends have the same time, the end with the lower rank (0, 1, 2) counts.
    end = F.least(
        _possible_end(F.col("run_end_us"), 0, F.lit("run end")),
        _possible_end(F.col("next_us"), 1, unloaded),
        _possible_end(F.col("death.died_us"), 2, F.col("death.died_by")),
    )
    return with_death.withColumn("end", end).select(
        *_KEY,
        "start_us",
        F.col("end.at_us").alias("end_us"),
        F.col("end.why").alias("end_reason"),
    )


def _possible_end(at_us: Column, rank: int, why: Column) -> Column:
    """Return a possible end of a tenure as a struct; null if this end did not happen."""
    end = F.struct(at_us.alias("at_us"), F.lit(rank).alias("rank"), why.alias("why"))
    return F.when(at_us.isNotNull(), end)


def _acknowledged(events: DataFrame) -> DataFrame:
    """One row per tenure that acknowledged a commit: the number and the times of its commits.

    A commit is acknowledged when its append to the log is complete.
    """
    # A broker appends commits, but also assignments, for example. An append was a commit if there
    # is a row COMMIT_STORED with the same values in the columns `append`. The leader epoch is taken
    # from the row APPEND_COMPLETED, because a COMMIT_STORED has no epoch.
    append = ("run", "node", "incarnation", "correlation_id")
    stored = of_kind(events, TraceKind.COMMIT_STORED).select(*append).distinct()
    completed = (
        of_kind(events, TraceKind.APPEND_COMPLETED)
        .where(F.col("error") == "NONE")
        .select(*append, "partition", "leader_epoch", "time_us")
    )
    return (
        completed.join(stored, list(append), "left_semi")
        .groupBy("run", "partition", "leader_epoch", F.col("node").alias("broker"), "incarnation")
        .agg(
            F.count("*").alias("commits"),
            F.min("time_us").alias("first_commit_us"),
            F.max("time_us").alias("last_commit_us"),
        )
    )
