"""The tables `felt_partitions` and `felt_groups`: what the users of a group notice of faults.

Users do not notice a rebalance as such. They notice that no member processes a partition for a
while, that the lag of the partition grows, that records are processed twice, or that members are
removed. The lag is the number of acknowledged records that the group has not processed yet.

Only a part of the run is measured: from the moment at which all groups have all their members and
partitions (the steady state) to the run's end. A run that never reached the steady state is
measured from its beginning.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.groups import MEMBER_KINDS
from pipeline.intermediate.lives import deaths
from pipeline.intermediate.repeats import batches
from protocol.causes import RemovalCause
from protocol.trace import TraceKind
from protocol.trace_schema import CountDetail

WAIT_US = 1_000_000
"""Shortest wait that counts: 1 s. In normal work, too, records wait a little for the next poll, or
until the batch before them is done.
"""
_SENT_AWAY_CAUSES = (
    RemovalCause.SESSION_EXPIRY,
    RemovalCause.DID_NOT_REJOIN,
    RemovalCause.SYNC_DEADLINE,
)
"""Causes of removals of members from which the coordinator heard nothing in time. The coordinator
takes such a member to be gone. The column `sent_away` counts the members that were not gone at all.
"""
_PARTITION = ("run", "group", "partition")
"""The columns that name a data partition of a group."""


def felt_partitions(
    events: DataFrame,
    runs: DataFrame,
    faults: DataFrame,
    ownership: DataFrame,
    processing: DataFrame,
) -> DataFrame:
    """Measure the times without service, the lag and the repeated records of each partition.

    `events` has one row per event; the other inputs are the tables of these names.
    Output grain: one row per run, group and data partition that a member of the group owned or
    processed.
    Columns:
    - `run`, `group`, `partition`;
    - `from_us`, `to_us`: the measured time, on the run's clock;
    - `unowned_us`: microseconds without an owner, after the partition got its first owner;
    - `waited_us`: microseconds in which acknowledged records waited and no member worked on any
      record of the partition; only waits of a second or longer count;
    - `repeated`: how often a member processed a record that its group had processed before. Only
      this number is about the whole run; all others are about the measured time;
    - `lag_usual`: the greatest lag before the first fault;
    - `lag_peak`: the greatest lag after the first fault; `lag_peak_us`: the moment of this lag;
    - `lag_over_us`: microseconds from `lag_peak_us` until the lag was at most `lag_usual` again; 0
      if the lag never exceeded `lag_usual`.

    Nulls: `unowned_us` of a partition that no member ever owned; `lag_peak_us` if the lag never
    exceeded `lag_usual`; `lag_over_us` if the lag did not come down to `lag_usual` before the end.
    """
    measured = _measured(runs, faults)
    partitions = (
        ownership.select(*_PARTITION)
        .unionByName(processing.select(*_PARTITION))
        .distinct()
        .join(F.broadcast(measured), "run")
    )
    repeated = processing.groupBy(*_PARTITION).agg(F.sum("repeated").alias("repeated"))
    levels = _levels(events, partitions)
    return (
        partitions.join(_unowned(ownership, measured), list(_PARTITION), "left")
        .join(_waited(levels), list(_PARTITION), "left")
        .join(repeated, list(_PARTITION), "left")
        .join(_peaks(levels), list(_PARTITION), "left")
        .select(
            *_PARTITION,
            F.col("start_us").alias("from_us"),
            F.col("end_us").alias("to_us"),
            "unowned_us",
            F.coalesce("waited_us", F.lit(0)).alias("waited_us"),
            F.coalesce("repeated", F.lit(0)).alias("repeated"),
            F.coalesce("lag_usual", F.lit(0)).alias("lag_usual"),
            F.coalesce("lag_peak", F.lit(0)).alias("lag_peak"),
            "lag_peak_us",
            F.when(F.col("lag_peak_us").isNull(), F.lit(0))
            .otherwise(F.col("usual_again_us") - F.col("lag_peak_us"))
            .cast("long")
            .alias("lag_over_us"),
        )
    )


def felt_groups(
    events: DataFrame,
    runs: DataFrame,
    faults: DataFrame,
    groups: DataFrame,
    ownership: DataFrame,
    rebalances: DataFrame,
    impairments: DataFrame,
    felt_partitions: DataFrame,
) -> DataFrame:
    """Count the rebalances, moved partitions and removed members of each group.

    `events` has one row per event, `impairments` one row per time in which a node was paused or cut
    off; the other inputs are the tables of these names. Output grain: one row per run and group.
    Columns: `run`, `group`, and these numbers:
    - `partitions`: the group's partitions in `felt_partitions`;
    - `rebalances`: the group's rebalances that began in the measured time;
    - `moved`: partitions that went from one owner to another in the measured time;
    - `came_back`: moved partitions that a former owner got again;
    - `sent_away`: removals of members that the coordinator took to be gone, although their process
      ran and was not cut off.

    Nulls: none.
    """
    measured = _measured(runs, faults)
    measured_rebalances = rebalances.join(F.broadcast(measured), "run").where(
        F.col("started_us").between(F.col("start_us"), F.col("end_us"))
    )
    by_group = ["run", "group"]
    # Each of these three columns is the number of rows that the DataFrame has about a group.
    rows_by_column = {
        "partitions": felt_partitions,
        "rebalances": measured_rebalances,
        "sent_away": _sent_away(events, impairments, measured),
    }
    counted = groups.select(*by_group)
    for column, rows in rows_by_column.items():
        number = rows.groupBy(*by_group).agg(F.count("*").alias(column))
        counted = counted.join(number, by_group, "left")
    owner_changes = (
        _owner_changes(ownership, measured)
        .groupBy(*by_group)
        .agg(
            F.count_if(F.col("successive_owners") > 1).alias("moved"),
            # If a partition had more successive than distinct owners, one owner got the partition
            # again.
            F.count_if(F.col("successive_owners") > F.col("owners")).alias("came_back"),
        )
    )
    names = ("partitions", "rebalances", "moved", "came_back", "sent_away")
    return counted.join(owner_changes, by_group, "left").select(
        *by_group, *(F.coalesce(name, F.lit(0)).alias(name) for name in names)
    )


def _measured(runs: DataFrame, faults: DataFrame) -> DataFrame:
    """One row per run: the measured time, and the first fault in it.

    Columns:
    - `run`;
    - `start_us`, `end_us`: beginning and end of the measured time;
    - `since_us`: the moment of the first fault in the measured time. Without a fault, it is the
      same as `start_us`.
    """
    # A run that never became steady is measured from its beginning (0).
    start_us = F.least("end_us", F.coalesce("steady_us", F.lit(0)))
    times = runs.select("run", start_us.alias("start_us"), "end_us")
    first = (
        faults.join(F.broadcast(times), "run")
        .where(F.col("injected_us") >= F.col("start_us"))
        .groupBy("run")
        .agg(F.min("injected_us").alias("fault_us"))
    )
    return times.join(first, "run", "left").select(
        "run", "start_us", "end_us", F.coalesce("fault_us", "start_us").alias("since_us")
    )


def _unowned(ownership: DataFrame, measured: DataFrame) -> DataFrame:
    """One row per partition that had an owner: for how long it was without an owner afterwards.

    The times between one owner and the next are added up, together with the time after the last
    owner. Only the part of these times that is in the measured time counts.
    """
    in_order = Window.partitionBy(*_PARTITION).orderBy("from_us")
    rows_before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    ends_us = F.coalesce("to_us", "end_us")  # `to_us` is null if the run's end ended the interval
    spans = ownership.join(F.broadcast(measured), "run").withColumn("ends_us", ends_us)
    first_us = F.min("from_us").over(Window.partitionBy(*_PARTITION))
    # `hole_us` is the time without an owner before the interval of a row. The intervals of two
    # owners can overlap. So the time without an owner begins when all earlier intervals have ended.
    # For the first interval, `max` over the earlier intervals is null, which `greatest` ignores.
    owned_until_us = F.greatest("start_us", first_us, F.max("ends_us").over(rows_before))
    hole_us = F.greatest(F.col("from_us") - owned_until_us, F.lit(0))
    # `tail_us` is the time after the last owner. All rows of a partition have the same `start_us`,
    # and the same `end_us`. `max` picks this value from the rows.
    last_us = F.greatest(F.max("start_us"), F.min("from_us"), F.max("ends_us"))
    tail_us = F.greatest(F.max("end_us") - last_us, F.lit(0))
    return (
        spans.withColumn("hole_us", hole_us)
        .groupBy(*_PARTITION)
        .agg((F.sum("hole_us") + tail_us).alias("unowned_us"))
    )


def _levels(events: DataFrame, partitions: DataFrame) -> DataFrame:
    """One row per batch that was produced or processed, with the lag after the batch.

    A produced batch has a row for each group that reads the partition, because each group has its
    own lag. Columns:
    - the columns of `partitions`;
    - `at_us`: when the batch was produced or processed;
    - `processed`: true for a processed batch, false for a produced batch;
    - `begun_us`: when work on a processed batch began; null for a produced batch;
    - `lag`: the number of acknowledged records above the last record that the group processed;
    - `nth`: the number of batches that were processed up to this row, including it.
    """
    count = detail("count", of=CountDetail).getField("count")
    produced = of_kind(events, TraceKind.RECORDS_PRODUCED).select(
        "run",
        "partition",
        F.col("time_us").alias("at_us"),
        F.lit(None).cast("long").alias("begun_us"),
        F.lit(False).alias("processed"),
        # The offset behind the batch's last record is the first offset plus the number of records.
        # If the trace lacks one of the two, its smallest possible value is assumed (0 or 1).
        (F.coalesce("offset", F.lit(0)) + F.coalesce(count, F.lit(1))).alias("next_offset"),
    )
    consumed = batches(events).select(
        *_PARTITION,
        "at_us",
        "begun_us",
        F.lit(True).alias("processed"),
        (F.col("last") + 1).alias("next_offset"),
    )
    # `partitions` has a row for each group. So the first join gives a produced batch, which belongs
    # to no group, a row for each group that reads its partition.
    steps = (
        produced.join(partitions.select(*_PARTITION), ["run", "partition"])
        .unionByName(consumed)
        .join(partitions, list(_PARTITION))
    )
    # If a batch was produced and another batch processed at the same moment, the produced batch
    # comes first: false sorts before true.
    so_far = (
        Window.partitionBy(*_PARTITION)
        .orderBy("at_us", "processed", "next_offset")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )

    def reached(condition: Column) -> Column:
        """Return the highest `next_offset` of all rows up to a row that meet the condition."""
        return F.coalesce(F.max(F.when(condition, F.col("next_offset"))).over(so_far), F.lit(0))

    is_processed = F.col("processed")
    # A member can process a record before the producer gets the acknowledgement of this record.
    # Then the difference is negative, and the lag is 0.
    lag = F.greatest(reached(~is_processed) - reached(is_processed), F.lit(0))
    return steps.withColumns({"lag": lag, "nth": F.count_if(is_processed).over(so_far)})


def _waited(levels: DataFrame) -> DataFrame:
    """One row per partition: for how long records waited while no member worked on any of them.

    Only waits of WAIT_US or longer count.
    """
    # `nth` counts the processed batches. So the rows with the same `nth` are the row of one
    # processed batch, and the rows of the batches that were produced before the next batch was
    # processed. There is at most one wait in this time: it begins with the first row that has a lag
    # above 0. `begun_us` is when the work on the processed batch began.
    between_batches = [*_PARTITION, "nth"]
    waits = levels.groupBy(*between_batches, "start_us", "end_us").agg(
        F.min(F.when(F.col("lag") > 0, F.col("at_us"))).alias("from_us"),
        F.min("begun_us").alias("begun_us"),
    )
    # A wait ends when a member begins to work on any later batch. The rows are in the order in
    # which the work on batches was finished. This need not be the order in which it was begun, if
    # two members own the partition at the same time. So it is not enough to look at the next batch.
    later = Window.partitionBy(*_PARTITION).orderBy("nth").rowsBetween(1, Window.unboundedFollowing)
    to_us = F.coalesce(F.min("begun_us").over(later), F.col("end_us"))
    # Only the part of a wait in the measured time counts.
    length_us = F.least(to_us, F.col("end_us")) - F.greatest("from_us", "start_us")
    return (
        waits.withColumn("length_us", length_us)
        .where(F.col("from_us").isNotNull())
        .groupBy(*_PARTITION)
        .agg(
            F.sum(F.when(F.col("length_us") >= WAIT_US, F.col("length_us"))).alias("waited_us"),
        )
    )


def _peaks(levels: DataFrame) -> DataFrame:
    """One row per partition: the greatest lags before the first fault and after it.

    - `lag_usual`: the greatest lag before the first fault.
    - `lag_peak`: the greatest lag after the first fault.
    - `lag_peak_us`: the moment of `lag_peak`; null if `lag_peak` is not above `lag_usual`.
    - `usual_again_us`: when the lag was at most `lag_usual` again.
    """
    at_us = F.col("at_us")
    # `since_us` is when the first fault came.
    before_fault = (at_us >= F.col("start_us")) & (at_us < F.col("since_us"))
    after_fault = (at_us >= F.col("since_us")) & (at_us <= F.col("end_us"))
    # The greatest lag after the fault, and its moment. `max` compares structs field by field. If
    # several rows have the greatest lag, it takes the greatest `negated_us`: the earliest moment.
    peak = F.max(F.when(after_fault, F.struct("lag", (-at_us).alias("negated_us"))))
    peaks = (
        levels.groupBy(*_PARTITION)
        .agg(
            F.coalesce(F.max(F.when(before_fault, F.col("lag"))), F.lit(0)).alias("lag_usual"),
            peak.alias("peak"),
        )
        .select(
            *_PARTITION,
            "lag_usual",
            F.col("peak.lag").alias("lag_peak"),
            F.when(F.col("peak.lag") > F.col("lag_usual"), -F.col("peak.negated_us")).alias(
                "lag_peak_us"
            ),
        )
    )
    is_after_peak = after_fault & (at_us > F.col("lag_peak_us"))
    usual_again = (
        levels.join(peaks, list(_PARTITION))
        .where(is_after_peak & (F.col("lag") <= F.col("lag_usual")))
        .groupBy(*_PARTITION)
        .agg(F.min("at_us").alias("usual_again_us"))
    )
    return peaks.join(usual_again, list(_PARTITION), "left")


def _owner_changes(ownership: DataFrame, measured: DataFrame) -> DataFrame:
    """One row per partition: the numbers of its successive owners and of its distinct owners.

    For example, if the owners were A, A, B, A, there were three successive owners (A, B, A), and
    two distinct owners (A, B). Only owners in the measured time count.
    """
    in_order = Window.partitionBy(*_PARTITION).orderBy("from_us", "consumer")
    in_measured_time = F.col("to_us").isNull() | (F.col("to_us") >= F.col("start_us"))
    previous_consumer = F.lag("consumer").over(in_order)
    # The first interval has no previous consumer. The comparison is null then, and `coalesce` turns
    # this null into false.
    is_same_owner = F.coalesce(previous_consumer == F.col("consumer"), F.lit(False))
    return (
        ownership.join(F.broadcast(measured), "run")
        .where(in_measured_time)
        .withColumn("is_same_owner", is_same_owner)
        .groupBy(*_PARTITION)
        .agg(
            F.count_if(~F.col("is_same_owner")).alias("successive_owners"),
            F.count_distinct("consumer").alias("owners"),
        )
    )


def _sent_away(events: DataFrame, impairments: DataFrame, measured: DataFrame) -> DataFrame:
    """One row per removal of a member whose process ran and could be reached."""
    # One row per member id: the process (node and incarnation) that wrote rows with this id, and in
    # `first_us` when it wrote the first of these rows. If several incarnations of the node wrote
    # rows with the id, the last incarnation counts.
    lives = (
        of_kind(events, *MEMBER_KINDS)
        .where(F.col("group").isNotNull() & F.col("member").isNotNull())
        .groupBy("run", "group", "member", "node", "incarnation")
        .agg(F.min("time_us").alias("first_us"))
        .groupBy("run", "group", "member")
        .agg(F.max(F.struct("node", "incarnation", "first_us")).alias("life"))
        .select("run", "group", "member", "life.node", "life.incarnation", "life.first_us")
    )
    removed = (
        of_kind(events, TraceKind.MEMBER_REMOVED)
        .where(F.col("cause").isin([cause.value for cause in _SENT_AWAY_CAUSES]))
        .join(F.broadcast(measured), "run")
        .where(F.col("time_us").between(F.col("start_us"), F.col("end_us")))
        .select(
            "run",
            "group",
            "member",
            F.col("time_us").alias("at_us"),
            F.struct("node", "incarnation", "seq").alias("row"),
        )
        # Members that wrote no row drop out here: it is not known whether their process ran.
        .join(lives, ["run", "group", "member"])
    )
    # A row of `deaths` is about one of two events:
    # - The end of a process. Then `successor` is null.
    # - A start of the node, which proves that all older processes of the node have ended. Then
    #   `successor` is the incarnation that started.
    dead = removed.join(deaths(events), ["run", "node"]).where(
        F.col("died_us").between(F.col("first_us"), F.col("at_us"))
        & (F.col("successor").isNull() | (F.col("successor") > F.col("incarnation")))
    )
    out_of_reach = removed.join(F.broadcast(impairments), ["run", "node"]).where(
        (F.col("impaired_from_us") <= F.col("at_us")) & (F.col("at_us") < F.col("impaired_to_us"))
    )
    gone = dead.select("run", "row").unionByName(out_of_reach.select("run", "row")).distinct()
    return removed.join(gone, ["run", "row"], "left_anti")
