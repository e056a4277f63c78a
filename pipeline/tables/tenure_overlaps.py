"""The table `tenure_overlaps`: times in which groups had two coordinators (split brain).

Suppose that another broker is elected as the leader of a partition of `__consumer_offsets`, and
that the old leader has not learnt this yet. Then the old leader still serves the groups of the
partition, beside the new leader.

A tenure is a time in which one broker serves the groups of a partition (table
`coordinator_tenures`). In the table `tenure_overlaps`, a row is a pair of two tenures that overlap.
The older tenure is the tenure with the lower leader epoch.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.lives import impaired_us
from protocol.api import Api
from protocol.trace import TraceKind

_OVERLAP = (
    "run",
    "partition",
    "older_epoch",
    "older_incarnation",
    "older_broker",
    "newer_epoch",
    "newer_incarnation",
    "newer_broker",
)
"""The columns that name an overlap: the partition, and the two tenures."""


def tenure_overlaps(
    events: DataFrame,
    tenures: DataFrame,
    groups: DataFrame,
    broker_phases: DataFrame,
    impairments: DataFrame,
) -> DataFrame:
    """Pair the tenures of one offsets partition that overlap in time.

    `events` has one row per event; `tenures` is the table `coordinator_tenures`; `impairments` has
    one row per time in which a node was paused or cut off. Output grain: one row per run, offsets
    partition and pair of overlapping tenures. If two tenures have the same epoch, the tenure that
    began first is called the older tenure.
    Columns:
    - `run`, `partition`, `groups` (the consumer groups in the partition);
    - `older_broker`, `older_epoch`, `older_incarnation`, `newer_broker`, `newer_epoch`,
      `newer_incarnation` (an incarnation is the time from one start of a process to its end);
    - `fault`: the fault that moved the partition to the newer broker;
    - `from_us`, `to_us`: when the overlap began and ended, in microseconds on the run's clock;
    - `length_us`: the overlap's length in microseconds;
    - `older_end`: how the older tenure ended;
    - `older_paused_us`, `older_cut_us`: microseconds of the overlap in which the older broker was
      paused, or cut off from others;
    - `older_heartbeats`, `newer_heartbeats`: heartbeats that the broker answered with success, if
      the answer reached the client during the overlap;
    - `older_commits`, `newer_commits`: commits that the broker acknowledged, if the answer reached
      the client during the overlap;
    - `older_commits_in_all`, `newer_commits_in_all`: commits in the whole tenure that the log
      acknowledged, whether or not the answer reached the client;
    - `older_last_commit_us`, `newer_first_commit_us`: when the log acknowledged the last commit of
      the older tenure, and the first commit of the newer one.

    Nulls: `fault` if no fault is known to have moved the partition; `older_last_commit_us`,
    `newer_first_commit_us` if the tenure had no commit.
    """
    older, newer = _side(tenures, "older"), _side(tenures, "newer")
    older_key = F.struct("older_epoch", "older_start_us", "older_broker", "older_incarnation")
    newer_key = F.struct("newer_epoch", "newer_start_us", "newer_broker", "newer_incarnation")
    overlaps = (
        older.join(newer, ["run", "partition"])
        .withColumn("from_us", F.greatest("older_start_us", "newer_start_us"))
        .withColumn("to_us", F.least("older_end_us", "newer_end_us"))
        # The join gives each pair of tenures in both orders, and each tenure with itself. Keep the
        # pairs in which the older tenure comes first. The comparison of the structs compares the
        # epochs first, and then the beginnings.
        .where((older_key < newer_key) & (F.col("from_us") < F.col("to_us")))
    )
    # This adds for how long the older broker was paused or cut off (`paused_us`, `cut_us`).
    impaired = impaired_us(overlaps, impairments, node="older_broker")
    groups_on_partition = groups.groupBy("run", "partition").agg(
        F.sort_array(F.collect_list("group")).alias("groups")
    )
    faults_that_moved = broker_phases.select(
        "run", "partition", F.col("leader_epoch").alias("newer_epoch"), "fault"
    )
    answers = _answers(events).join(groups.select("run", "group", "partition"), ["run", "group"])
    return (
        impaired.join(_answered_in_overlap(overlaps, answers), list(_OVERLAP), "left")
        .join(groups_on_partition, ["run", "partition"], "left")
        .join(faults_that_moved, ["run", "partition", "newer_epoch"], "left")
        .select(
            "run",
            "partition",
            F.coalesce("groups", F.array().cast("array<string>")).alias("groups"),
            "older_broker",
            "older_epoch",
            "older_incarnation",
            "newer_broker",
            "newer_epoch",
            "newer_incarnation",
            "fault",
            "from_us",
            "to_us",
            (F.col("to_us") - F.col("from_us")).alias("length_us"),
            "older_end",
            F.col("paused_us").alias("older_paused_us"),
            F.col("cut_us").alias("older_cut_us"),
            *(
                F.coalesce(name, F.lit(0)).alias(name)
                for name in (
                    "older_heartbeats",
                    "newer_heartbeats",
                    "older_commits",
                    "newer_commits",
                )
            ),
            "older_commits_in_all",
            "newer_commits_in_all",
            "older_last_commit_us",
            "newer_first_commit_us",
        )
    )


def _side(tenures: DataFrame, side: str) -> DataFrame:
    """Return the tenures with the prefix "older_" or "newer_" before the names of their columns."""
    return tenures.select(
        "run",
        "partition",
        F.col("leader_epoch").alias(f"{side}_epoch"),
        F.col("broker").alias(f"{side}_broker"),
        F.col("incarnation").alias(f"{side}_incarnation"),
        F.col("start_us").alias(f"{side}_start_us"),
        F.col("end_us").alias(f"{side}_end_us"),
        F.col("commits").alias(f"{side}_commits_in_all"),
        F.col("first_commit_us").alias(f"{side}_first_commit_us"),
        F.col("last_commit_us").alias(f"{side}_last_commit_us"),
        F.col("end_reason").alias(f"{side}_end"),
    )


def _answers(events: DataFrame) -> DataFrame:
    """One row per heartbeat or commit that was answered with success.

    `answered_us` is when the answer reached the client, and `peer` is the broker that answered.
    """
    answered_us = F.col("time_us").alias("answered_us")
    heartbeats = (
        of_kind(events, TraceKind.RESPONSE_RECEIVED)
        .where((F.col("api") == Api.HEARTBEAT.label) & (F.col("error") == "NONE"))
        .select("run", "group", "peer", F.lit("heartbeat").alias("what"), answered_us)
    )
    # A commit of several partitions has a row for each partition, all with the same client and
    # time. `distinct` keeps one of these rows.
    commits = (
        of_kind(events, TraceKind.OFFSETS_COMMITTED)
        .select("run", "group", "peer", "node", answered_us)
        .distinct()
        .select("run", "group", "peer", F.lit("commit").alias("what"), "answered_us")
    )
    return heartbeats.unionByName(commits)


def _answered_in_overlap(overlaps: DataFrame, answers: DataFrame) -> DataFrame:
    """One row per overlap in which there were answers: the numbers of answers of both brokers."""
    is_in_overlap = (F.col("answered_us") >= F.col("from_us")) & (
        F.col("answered_us") < F.col("to_us")
    )
    return (
        answers.join(F.broadcast(overlaps), ["run", "partition"])
        .where(is_in_overlap)
        .groupBy(*_OVERLAP)
        .agg(
            _count_of("heartbeat", "older"),
            _count_of("heartbeat", "newer"),
            _count_of("commit", "older"),
            _count_of("commit", "newer"),
        )
    )


def _count_of(what: str, side: str) -> Column:
    """Return the number of answers of one kind that the broker of one side gave.

    For example, `_count_of("heartbeat", "older")` is the column `older_heartbeats`.
    """
    by_this_side = F.col("peer") == F.col(f"{side}_broker")
    return F.count_if((F.col("what") == what) & by_this_side).alias(f"{side}_{what}s")
