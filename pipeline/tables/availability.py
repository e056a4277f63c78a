"""The table `availability`: for how long members, partitions and groups were not served.

The table has a row for each fault and each member, data partition or group, with the gap that the
fault caused:

- a time in which a member had no acknowledged commit (commit gap);
- a time in which no member worked on the records of a partition (processing gap);
- a time in which a group had no active coordinator.

`intermediate.gaps` lists all gaps of a run. This module picks the gap of each fault from the list.
If the run ended in the middle of a gap, the gap is open: its end (`after_us`) is null. For an open
gap, `pending_us` is the first moment at which service was missed, such as the moment at which the
member sent a commit that was never acknowledged.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.intermediate.gaps import commit_gaps, coordinator_holes, processing_gaps

_SUBJECT = ("run", "fault", "subject_kind", "group", "subject")
"""The columns that name a fault, and the member, partition or group (subject) that had the gap."""
_ENDS_TYPE = "struct<before_us: bigint, after_us: bigint>"
"""The type of a struct with the beginning and the end of a gap."""


def availability(
    events: DataFrame,
    runs: DataFrame,
    tenures: DataFrame,
    failovers: DataFrame,
) -> DataFrame:
    """Measure the gap that each fault caused for each member, data partition and group.

    The three kinds of subjects, and their gaps:
    - `member`: a time without an acknowledged commit. If the fault moved the coordinator, the gap
      ends with the member's first commit at a later coordinator, and begins with the commit before
      it. A later coordinator is the leader in the new leader epoch, or in a newer epoch. If the
      coordinator did not move, the gap is the member's longest time without an acknowledged commit
      around or after the fault.
    - `partition` (of a data topic, per group): the longest time around or after the fault in which
      no member of the group worked on a record of the partition.
    - `group`: the longest time after the fault in which no broker was the group's active
      coordinator. If a coordinator was always active, the gap is 0: it begins and ends at the
      fault.

    Rules for the gaps of members and partitions:
    1. A gap is "around or after the fault" if it begins before the next fault that affects the
       group and ends after this fault. If it begins after this fault, it must also end before the
       next fault.
    2. Each interval between two commits or batches counts as a gap. So even a fault without an
       effect has a gap, which is as long as the usual interval.
    3. An open gap counts only if service was missed in it (`pending_us`): the consumer sent a
       commit or gave the coordinator up, or a record was produced. The length of the gap counts
       from this moment to the run's end.
    4. If several gaps have the same length, the earliest counts.
    `events` has one row per event; `runs` is the table, `tenures` the table `coordinator_tenures`;
    `failovers` has one row per fault and group (`failovers.group_failovers`).
    Output grain: one row per run, fault, subject kind, group and subject.
    Columns:
    - `run`, `fault`, `subject_kind`, `group`;
    - `subject`: the consumer's node, the data partition, or the group;
    - `before_us`, `after_us`: beginning and end of the gap, in microseconds on the run's clock. The
      gap of a partition begins when work on a batch ends, and ends when work on the next batch
      begins;
    - `gap_us`: the gap's length in microseconds.

    Nulls: `after_us` and `gap_us` if service did not come back before the run ended. A member or
    partition without any activity around the fault has no row. A group that had no coordinator
    before the fault has no row, either.
    """
    picked_gaps = (
        _commits(commit_gaps(events), failovers, runs)
        .unionByName(_processing(processing_gaps(events), failovers, runs))
        .unionByName(_coordination(coordinator_holes(tenures, runs), failovers, tenures))
    )
    return picked_gaps.select(
        "run",
        "fault",
        "subject_kind",
        "group",
        "subject",
        (F.col("after_us") - F.col("before_us")).alias("gap_us"),
        "before_us",
        "after_us",
    )


def _commits(gaps: DataFrame, failovers: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per fault, group and consumer: its gap between two commits."""
    gaps_per_fault = _gaps_per_fault(gaps, failovers, runs)
    # `after_peer` is the broker that acknowledged the commit at the end of the gap.
    # The old coordinator can still acknowledge commits that were on their way when it lost the
    # partition. This does not mean that the member is served again, so only a commit at a later
    # coordinator ends the gap. The column `later` lists all later coordinators, each with the
    # moment at which it became active. If the old coordinator is elected again, `later` has it,
    # too.
    at_later = F.exists(
        "later",
        lambda tenure: (
            (tenure["broker"] == F.col("after_peer")) & (tenure["start_us"] <= F.col("after_us"))
        ),
    )
    is_open = F.col("after_us").isNull() & F.col("pending_us").isNotNull()
    # If the coordinator moved, the first gap that ends at a later coordinator counts. If no gap
    # ends there, the open gap counts. A member has only one open gap, so `max` has nothing to
    # choose from. `min_by` and `max_by` leave out gaps whose sort key is null.
    first_at_later = F.min_by(_ends_of_gap(), F.when(F.col("moved") & at_later, F.col("after_us")))
    open_after_move = F.max(F.when(F.col("moved") & is_open, _ends_of_gap()))
    # If the coordinator did not move, `first_at_later` and `open_after_move` are null, and the
    # longest gap counts.
    longest = F.max_by(_ends_of_gap(), _longest_if(~F.col("moved") & _around_the_fault()))
    picked = F.coalesce(first_at_later, open_after_move, longest)
    return _picked(gaps_per_fault, picked, "member")


def _processing(gaps: DataFrame, failovers: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per fault, group and data partition: its gap between two batches."""
    gaps_per_fault = _gaps_per_fault(gaps, failovers, runs)
    longest = F.max_by(_ends_of_gap(), _longest_if(_around_the_fault()))
    return _picked(gaps_per_fault, longest, "partition")


def _coordination(holes: DataFrame, failovers: DataFrame, tenures: DataFrame) -> DataFrame:
    """One row per fault and group: the longest time without a coordinator (a hole).

    A group that had no coordinator before the fault has no row.
    """
    first_tenures = tenures.groupBy("run", "partition").agg(F.min("start_us").alias("first_us"))
    # From the fault (`fault_us`) to the next fault that affects the group (`until_us`).
    in_window = (F.col("before_us") < F.col("until_us")) & (
        F.col("after_us").isNull() | (F.col("after_us") > F.col("fault_us"))
    )
    # A hole that never ended counts as the longest: 2**62 is greater than any time.
    length = F.coalesce(F.col("after_us") - F.col("before_us"), F.lit(2**62))
    longest = F.max_by(_ends_of_gap(), F.when(in_window, _longest_then_earliest(length)))
    # If a coordinator was always active, the gap has length 0: it begins and ends at the fault.
    no_gap = F.struct(F.col("fault_us").alias("before_us"), F.col("fault_us").alias("after_us"))
    return (
        failovers.join(first_tenures, ["run", "partition"])
        .where(F.col("first_us") <= F.col("fault_us"))
        .join(holes, ["run", "partition"], "left")
        .groupBy("run", "fault", "group", "fault_us")
        .agg(longest.alias("longest"))  # null if there was no hole
        .withColumn("gap", F.coalesce("longest", no_gap))
        .withColumns({"subject_kind": F.lit("group"), "subject": F.col("group")})
        .select(*_SUBJECT, "gap.before_us", "gap.after_us")
    )


def _gaps_per_fault(gaps: DataFrame, failovers: DataFrame, runs: DataFrame) -> DataFrame:
    """Join each gap with the faults of its group that came before the gap's end.

    Output grain: at most one row per gap and fault.
    """
    ends = runs.select("run", "end_us")
    faults_of_groups = failovers.join(ends, "run")
    after_fault = F.col("after_us").isNull() | (F.col("after_us") > F.col("fault_us"))
    return gaps.join(F.broadcast(faults_of_groups), ["run", "group"]).where(after_fault)


def _around_the_fault() -> Column:
    """Return whether a gap belongs to this fault by rule 1 and rule 3 of `availability`.

    `until_us` is the next fault that affects the group, or the run's end (`end_us`).
    """
    closed_or_missed = F.col("after_us").isNotNull() | F.col("pending_us").isNotNull()
    is_last_fault = F.col("until_us") >= F.col("end_us")
    # False for an open gap, whose `after_us` is null.
    ended_before_next_fault = F.coalesce(F.col("after_us") <= F.col("until_us"), F.lit(False))
    began_before_fault = F.col("before_us") <= F.col("fault_us")
    # After the last fault, no other fault can be the cause of a gap. So its end does not matter.
    belongs_to_fault = is_last_fault | ended_before_next_fault | began_before_fault
    began_before_next_fault = F.col("before_us") < F.col("until_us")
    return began_before_next_fault & belongs_to_fault & closed_or_missed


def _longest_if(condition: Column) -> Column:
    """Return a sort key with which `max_by` picks the longest gap that meets `condition`.

    The length of an open gap counts from the moment at which service was first missed.
    """
    closed = F.col("after_us") - F.col("before_us")
    since_us = F.greatest("pending_us", "before_us")
    open_for = F.greatest(F.col("end_us") - since_us, F.lit(0))
    return F.when(condition, _longest_then_earliest(F.coalesce(closed, open_for)))


def _longest_then_earliest(length: Column) -> Column:
    """Return a sort key with which `max_by` picks the longest gap.

    If several gaps have the same length, the key picks the earliest of them.
    """
    return F.struct(length.alias("length_us"), (-F.col("before_us")).alias("earlier"))


def _ends_of_gap() -> Column:
    """Return the beginning and the end of a gap as one value, so that both are picked together."""
    return F.struct("before_us", "after_us").cast(_ENDS_TYPE)


def _picked(gaps_per_fault: DataFrame, picked: Column, subject_kind: str) -> DataFrame:
    """One row per fault and subject that has a gap: the result of the aggregation in `picked`."""
    return (
        gaps_per_fault.groupBy("run", "fault", "group", "subject")
        .agg(picked.alias("gap"))
        .where(F.col("gap").isNotNull())
        .withColumn("subject_kind", F.lit(subject_kind))
        .select(*_SUBJECT, "gap.before_us", "gap.after_us")
    )
