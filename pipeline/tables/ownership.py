"""The table `ownership`: which member owned which data partition, and from when to when.

A row is about one interval in which one member believed that it owned one partition. A member
writes a row into the trace when it gets partitions, and another row when it gives them up. But a
member that dies writes nothing. So the table is computed in three steps:

1. `ownership_intervals` makes an interval of each assignment of a partition. If the member itself
   wrote that it had given the partition up, the interval ends with this row.
2. `ownership_spans` gives all other intervals their end: the death of the member, or the end of the
   run.
3. `ownership` adds the leader epoch of the coordinator that gave the assignment. It also adds for
   how long the member was paused during the interval.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.lives import deaths, impaired_us
from protocol.api import Api
from protocol.trace import TraceKind
from protocol.trace_schema import PartitionsDetail

_MEMBER = ("run", "group", "node", "incarnation")
"""The columns that name a member, from one start of its process to its end (an incarnation)."""
_ENDINGS = {
    TraceKind.PARTITIONS_REVOKED: "revoked",
    TraceKind.PARTITIONS_LOST: "lost",
    TraceKind.PARTITIONS_ASSIGNED: "reassigned",
}
"""The kinds of rows with which a member ends an interval. The word after each kind is the value of
the column `ended_by`.
"""
_INTERVAL = (*_MEMBER, "partition", "nth")
"""The columns that name an interval. `nth` is the number of the assignment with which the interval
began: the first assignment of the partition to the member has the number 1.
"""


def ownership(
    spans: DataFrame, groups: DataFrame, tenures: DataFrame, impairments: DataFrame
) -> DataFrame:
    """List the intervals in which a member owned a partition.

    An interval begins when the member gets its assignment. It ends when the member revokes or loses
    the partition, gets it assigned again, or dies. A paused member still owns its partitions.
    `spans` has one row per interval (`ownership_spans`); `groups` is the table; `tenures` is the
    table `coordinator_tenures`; `impairments` has one row per time in which a node was paused or
    cut off. Output grain: one row per run, group, data partition, member and interval.
    Columns:
    - `run`, `group`, `partition`, `consumer` (the member's node), `incarnation`, `member`,
      `generation`;
    - `coordinator`, `leader_epoch`: the broker that gave the assignment, and the epoch in which it
      was the coordinator at that time;
    - `position`: where the member began to read (committed | earliest | latest); `start_offset`:
      the offset at which it began;
    - `from_us`, `to_us`: beginning and end of the interval, in microseconds on the run's clock;
      `length_us`: its length, up to the run's end if nothing ended the interval;
    - `ended_by`: revoked, lost, reassigned, killed, stopped, or run end;
    - `paused_us`: microseconds of the interval in which the member was paused;
    - `records`: number of records processed in the interval.

    Nulls:
    - `to_us` if the member still owned the partition when the run ended;
    - `position`, `start_offset` if the member never set a position;
    - `coordinator` if no row of the member names it;
    - `leader_epoch` if no tenure of the coordinator is known at `from_us`.
    """
    with_epoch = _with_epoch(spans, groups, tenures)
    return impaired_us(with_epoch, impairments, node="consumer").select(
        "run",
        "group",
        "partition",
        "consumer",
        "incarnation",
        "member",
        "generation",
        "coordinator",
        "leader_epoch",
        "position",
        "start_offset",
        "from_us",
        F.col("ends_us").alias("to_us"),
        # This is the column `to_us` of the spans. It is never null, because it has the run's end
        # for an interval that lasted so long.
        (F.col("to_us") - F.col("from_us")).alias("length_us"),
        "ended_by",
        "paused_us",
        "records",
    )


def ownership_spans(events: DataFrame, intervals: DataFrame, runs: DataFrame) -> DataFrame:
    """Give each interval of `ownership_intervals` its end.

    Intervals that begin after the run's end are dropped.

    Output grain: one row per run, group, data partition, member and interval. Columns:
    - the columns of `ownership_intervals`, with `node` renamed to `consumer`;
    - `ended_by`: how the interval ended;
    - `to_us`: when the interval ended, which is the run's end if it lasted so long;
    - `ends_us`: when the interval ended; null if it lasted until the run's end. The table
      `ownership` has this column under the name `to_us`.

    Both moments are in microseconds on the run's clock. Other nulls: as in `ownership`.
    """
    # The `to_us` of `_with_end` is null if the interval lasted until the run's end.
    spans = _with_end(intervals, deaths(events), runs)
    end_us = F.coalesce("to_us", "run_end_us")
    # `withColumns` computes both new columns from the old columns. So `ends_us` gets the `to_us` of
    # `_with_end`, and not the new `to_us` beside it.
    return spans.withColumns(
        {"ends_us": F.col("to_us"), "to_us": F.greatest("from_us", end_us)}
    ).withColumnRenamed("node", "consumer")


def ownership_intervals(events: DataFrame) -> DataFrame:
    """Find all intervals, each with the row by which the member itself ended the interval.

    Output grain: one row per run, group, data partition, member and assignment. Columns: `run`,
    `node`, `incarnation`, `group`, `partition`, `member`, `generation`, `coordinator`, `position`,
    `start_offset`, `records`, `from_us`; `next_us`: when the member ended the interval, in
    microseconds on the run's clock; `next_by`: how the member ended the interval, in the words of
    the column `ended_by`.
    Nulls: as in `ownership`; `next_us` if no row of the member ended the interval. Then `next_by`
    has no meaning.
    """
    in_order = Window.partitionBy(*_MEMBER, "partition").orderBy("seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_assignment = _is(TraceKind.PARTITIONS_ASSIGNED)
    # How a row ends an interval, in the words of _ENDINGS; null if the row ends no interval.
    ending = F.coalesce(
        *(F.when(_is(kind), F.lit(word)) for kind, word in _ENDINGS.items()),
    )
    gives_up = ending.isNotNull() & ~is_assignment
    since_assigned = (
        Window.partitionBy(*_INTERVAL)
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    # The two new columns of `steps`:
    # - `nth` is the number of the interval. It is 0 in rows before the first assignment.
    # - `given_up` becomes true in the row with which the member revokes or loses the partition, and
    #   stays true in later rows of the interval. The member may still finish a batch after this
    #   row. Such a batch does not count in the interval.
    steps = (
        _assignments(events)
        .unionByName(_processing(events))
        .withColumn("nth", F.count_if(is_assignment).over(so_far))
        .where(F.col("nth") > 0)
        .withColumn("given_up", F.count_if(gives_up).over(since_assigned) > 0)
    )
    first_end = F.min(
        F.when(gives_up, F.struct("seq", F.col("time_us").alias("at_us"), ending.alias("why")))
    )
    intervals = steps.groupBy(*_INTERVAL).agg(
        # An interval has one row of the kind PARTITIONS_ASSIGNED. The next four columns have the
        # values of this row: `min` and `max` ignore the nulls of all other rows.
        F.min(F.when(is_assignment, F.col("time_us"))).alias("from_us"),
        F.max(F.when(is_assignment, F.col("member"))).alias("member"),
        F.max(F.when(is_assignment, F.col("generation"))).alias("generation"),
        F.max(F.when(is_assignment, F.col("coordinator"))).alias("coordinator"),
        first_end.alias("own_end"),
        F.min(
            F.when(
                _is(TraceKind.POSITION_RESET) & ~F.col("given_up"),
                F.struct("seq", F.col("offset").alias("start_offset"), "position"),
            )
        ).alias("began"),
        F.coalesce(F.sum(F.when(~F.col("given_up"), F.col("count"))), F.lit(0)).alias("records"),
    )
    # A member may get the partition assigned again without having given it up. Then the interval
    # ends where the next interval begins.
    by_number = Window.partitionBy(*_MEMBER, "partition").orderBy("nth")
    next_from_us = F.lead("from_us").over(by_number)
    return intervals.withColumn("next_from_us", next_from_us).select(
        *_MEMBER,
        "partition",
        "member",
        "generation",
        "coordinator",
        "began.position",
        "began.start_offset",
        "records",
        "from_us",
        F.coalesce("own_end.at_us", "next_from_us").alias("next_us"),
        F.coalesce("own_end.why", F.lit("reassigned")).alias("next_by"),
    )


def _assignments(events: DataFrame) -> DataFrame:
    """One row per partition that a member got, revoked or lost, with the member's coordinator."""
    # True for the answer to a successful SyncGroup. Its `peer`, the broker that answered, is the
    # coordinator that gave the member its partitions.
    is_sync = (
        _is(TraceKind.RESPONSE_RECEIVED)
        & (F.col("api") == Api.SYNC_GROUP.label)
        & (F.col("error") == "NONE")
    )
    so_far = (
        Window.partitionBy(*_MEMBER)
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    rows = of_kind(events, *_ENDINGS, TraceKind.RESPONSE_RECEIVED)
    assignments = (
        rows.where(~_is(TraceKind.RESPONSE_RECEIVED) | is_sync)
        .where(F.col("group").isNotNull())
        # `synced_with` is the broker that answered the last SyncGroup before the row.
        .withColumn(
            "synced_with", F.last(F.when(is_sync, F.col("peer")), ignorenulls=True).over(so_far)
        )
        .where(~_is(TraceKind.RESPONSE_RECEIVED))
        .withColumn("partitions", detail("partitions", of=PartitionsDetail).getField("partitions"))
    )
    return assignments.select(
        *_MEMBER,
        F.explode("partitions").alias("partition"),
        "seq",
        "time_us",
        "kind",
        "member",
        "generation",
        # `peer` is the coordinator, but not all rows name it.
        F.coalesce("peer", "synced_with").alias("coordinator"),
        # Only the rows of `_processing` have values in these columns.
        F.lit(None).cast("long").alias("offset"),
        F.lit(None).cast("string").alias("position"),
        F.lit(None).cast("long").alias("count"),
    )


def _processing(events: DataFrame) -> DataFrame:
    """One row per position from which a member began to read, and per batch that it processed.

    The columns are the same as in the result of `_assignments`.
    """
    rows = of_kind(events, TraceKind.POSITION_RESET, TraceKind.RECORDS_CONSUMED)
    # If the trace does not tell the number of a batch's records, it is computed from the first and
    # last offset. If it does not tell the last offset either, the batch counts as one record.
    count = F.coalesce("span.count", F.col("span.last") - F.col("offset") + 1, F.lit(1))
    return rows.select(
        *_MEMBER,
        "partition",
        "seq",
        "time_us",
        "kind",
        "member",
        "generation",
        F.lit(None).cast("string").alias("coordinator"),
        "offset",
        # In a POSITION_RESET, `cause` tells why the member begins at this offset: `committed`, for
        # example.
        F.col("cause").alias("position"),
        F.when(_is(TraceKind.RECORDS_CONSUMED), count).alias("count"),
    )


def _with_end(intervals: DataFrame, died: DataFrame, runs: DataFrame) -> DataFrame:
    """Add when each interval ended (`to_us`), and how it ended (`ended_by`).

    An interval ended with a row that the member wrote (`next_us`), or with the member's death,
    whichever came first. If the run ended before both, `to_us` is null, and `ended_by` is
    "run end". Intervals that begin after the run's end are dropped.
    """
    is_after_start = F.col("died_us") >= F.col("from_us")
    # A row of `died` is about one of two events:
    # - The end of a process. Then `successor` is null.
    # - A start of the node, which proves that all older processes of the node have ended. Then
    #   `successor` is the incarnation that started.
    is_of_this_life = F.col("successor").isNull() | (F.col("successor") > F.col("incarnation"))
    interval = [*_MEMBER, "partition", "from_us"]
    deaths_of = (
        intervals.join(died, ["run", "node"])
        .where(is_after_start & is_of_this_life)
        .groupBy(*interval)
        .agg(F.min(F.struct("died_us", "died_by")).alias("death"))
    )
    own_end = F.when(
        F.col("next_us").isNotNull(),
        F.struct(F.col("next_us").alias("at_us"), F.col("next_by").alias("why")),
    )
    death = F.when(
        F.col("death").isNotNull(),
        F.struct(F.col("death.died_us").alias("at_us"), F.col("death.died_by").alias("why")),
    )
    run_ends = F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us")))
    # `least` ignores nulls. It compares structs by their first field, which is the time.
    earliest_end = F.least(own_end, death)
    ended_in_run = F.col("end").isNotNull() & (F.col("end.at_us") < F.col("run_end_us"))
    return (
        intervals.join(deaths_of, interval, "left")
        .join(run_ends, "run")
        .where(F.col("from_us") <= F.col("run_end_us"))
        .withColumn("end", earliest_end)
        .withColumn("to_us", F.when(ended_in_run, F.col("end.at_us")))
        .withColumn("ended_by", F.when(ended_in_run, F.col("end.why")).otherwise(F.lit("run end")))
    )


def _with_epoch(intervals: DataFrame, groups: DataFrame, tenures: DataFrame) -> DataFrame:
    """Add `leader_epoch`: in which epoch the coordinator gave the assignment.

    The coordinator may have served the group several times, each time in another epoch. The last
    time that began before the assignment counts.
    """
    served = groups.select("run", "group", F.col("partition").alias("offsets_partition")).join(
        tenures.select(
            "run",
            F.col("partition").alias("offsets_partition"),
            F.col("broker").alias("coordinator"),
            "leader_epoch",
            "start_us",
        ),
        ["run", "offsets_partition"],
    )
    assignment = ["run", "group", "coordinator", "from_us"]
    epochs = (
        intervals.select(*assignment)
        .distinct()
        .join(served, ["run", "group", "coordinator"])
        .where(F.col("start_us") <= F.col("from_us"))
        .groupBy(*assignment)
        .agg(F.max_by("leader_epoch", F.struct("start_us", "leader_epoch")).alias("leader_epoch"))
    )
    return intervals.join(epochs, assignment, "left")


def _is(kind: TraceKind) -> Column:
    """Return whether a row is of a kind."""
    return F.col("kind") == kind.value
