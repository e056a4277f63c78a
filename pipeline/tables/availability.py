"""The table `availability`: how long each fault left members, partitions and groups unserved.

Three kinds of gaps are measured around a fault:

- a member has no commit acknowledged (commit gap);
- no member of a group processes a partition (processing gap);
- a group has no active coordinator.

A gap is the longest time of its kind around the fault. If the run ended in the middle of a gap, its
end (`after_us`) is null, and `pending_us` is the first moment at which something was missing, such
as the failure of a commit.

The transforms start from the step `failovers`, which has a row for each fault and group. It says
whether the fault moved the group's coordinator (`moved`), which coordinators came then and when
each became active (`later`), and when the next fault of the group came (`until_us`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.intermediate.gaps import commit_gaps, coordinator_holes, processing_gaps

_SUBJECT = ("run", "fault", "subject_kind", "group", "subject")
"""Columns that name a fault and a subject."""
_ENDS_TYPE = "struct<before_us: bigint, after_us: bigint>"
"""Type of a struct with both ends of a gap."""


def availability(
    events: DataFrame,
    runs: DataFrame,
    tenures: DataFrame,
    failovers: DataFrame,
) -> DataFrame:
    """Measure the gap that each fault caused for each subject.

    The kinds of subjects, and their gaps:
    - `member`: a time without an acknowledged commit. If the fault moved the coordinator, the gap
      ends with the member's first commit at a later coordinator, and begins with the member's
      commit before it. The later coordinators are the leader of the new leader epoch (the number of
      the partition's leadership) and the leaders of newer epochs. If the coordinator did not move,
      the gap is the member's longest time without an acknowledged commit around or after the fault.
    - `partition` (of a data topic, per group): the longest time around or after the fault in which
      no member of the group worked on a record of the partition.
    - `group`: the longest time after the fault in which no broker was the group's active
      coordinator. If a coordinator was always active, the gap is 0: it begins and ends at the
      fault.

    Rules for the gaps of members and partitions:
    1. A gap is "around or after the fault" if it begins before the next fault that affects the
       group and ends after this fault. If it begins after this fault, it must also end before the
       next fault.
    2. Each interval between two commits or batches counts as a gap, so even without an effect of
       the fault, the gap is as long as the usual interval.
    3. An open gap counts only if the subject missed something: the consumer requested a commit or
       marked the coordinator unknown, or a record was produced. The length of the gap counts from
       that moment to the run's end.
    4. If several gaps have the same length, the earliest counts.
    `events` has one row per event; `runs` is the table, `tenures` the table `coordinator_tenures`;
    `failovers` has one row per fault and group.
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
    chosen_gaps = (
        _commits(commit_gaps(events), failovers, runs)
        .unionByName(_processing(processing_gaps(events), failovers, runs))
        .unionByName(_coordination(coordinator_holes(tenures, runs), failovers, tenures))
    )
    return chosen_gaps.select(
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
    """Return one row per fault, group and consumer, with its gap between commits."""
    gaps_per_fault = _gaps_per_fault(gaps, failovers, runs)
    # The old coordinator can still acknowledge commits that were in flight when it lost the
    # partition. Service has not come back then, so only a commit at a later coordinator ends the
    # gap. If the old coordinator is elected again, it counts as a later coordinator from its new
    # start on.
    at_later = F.exists(
        "later",
        lambda tenure: (
            (tenure["broker"] == F.col("after_peer")) & (tenure["start_us"] <= F.col("after_us"))
        ),
    )
    ends_at_later = F.col("moved") & at_later
    missed_until_end = F.col("after_us").isNull() & F.col("pending_us").isNotNull()
    is_open_after_move = F.col("moved") & missed_until_end
    is_around_no_move = ~F.col("moved") & _around_the_fault()
    # If the coordinator moved, the first gap that ends at a later coordinator counts. If there is
    # no such gap, the open gap counts. If the coordinator did not move, both are null, and the
    # longest gap counts. A subject has at most one open gap, so `max` only picks it.
    first = F.min_by(_ends_of_gap(), F.when(ends_at_later, F.col("after_us")))
    picked = F.coalesce(
        first,
        F.max(F.when(is_open_after_move, _ends_of_gap())),
        F.max_by(_ends_of_gap(), _length(is_around_no_move)),
    )
    return _picked(gaps_per_fault, picked, "member")


def _processing(gaps: DataFrame, failovers: DataFrame, runs: DataFrame) -> DataFrame:
    """Return one row per fault, group and data partition, with its gap between batches."""
    gaps_per_fault = _gaps_per_fault(gaps, failovers, runs)
    return _picked(
        gaps_per_fault, F.max_by(_ends_of_gap(), _length(_around_the_fault())), "partition"
    )


def _coordination(holes: DataFrame, failovers: DataFrame, tenures: DataFrame) -> DataFrame:
    """Return one row per fault and group, with the longest time without a coordinator.

    A group whose partition never had a coordinator before the fault has no row.
    """
    first = tenures.groupBy("run", "partition").agg(F.min("start_us").alias("first_us"))
    in_window = (F.col("before_us") < F.col("until_us")) & (
        F.col("after_us").isNull() | (F.col("after_us") > F.col("fault_us"))
    )
    # A time without a coordinator that never ended ranks as the longest of all: 2**62 is greater
    # than any time.
    length = F.coalesce(F.col("after_us") - F.col("before_us"), F.lit(2**62))
    longest = F.max_by(_ends_of_gap(), F.when(in_window, _earliest(length)))
    # If a coordinator was always active, the gap has length 0 and lies at the fault.
    no_gap = F.struct(F.col("fault_us").alias("before_us"), F.col("fault_us").alias("after_us"))
    return (
        failovers.join(first, ["run", "partition"])
        .where(F.col("first_us") <= F.col("fault_us"))
        .join(holes, ["run", "partition"], "left")
        .groupBy("run", "fault", "group", "fault_us")
        .agg(longest.alias("longest"))  # null if no hole is in the fault's time
        .withColumn("gap", F.coalesce("longest", no_gap))
        .withColumns({"subject_kind": F.lit("group"), "subject": F.col("group")})
        .select(*_SUBJECT, "gap.before_us", "gap.after_us")
    )


def _gaps_per_fault(gaps: DataFrame, failovers: DataFrame, runs: DataFrame) -> DataFrame:
    """Join each gap with the group's faults before the gap's end, and an open gap with all faults.

    Output grain: at most one row per gap and fault.
    """
    ends = runs.select("run", "end_us")
    faults_of_groups = failovers.join(ends, "run")
    after_fault = F.col("after_us").isNull() | (F.col("after_us") > F.col("fault_us"))
    return gaps.join(F.broadcast(faults_of_groups), ["run", "group"]).where(after_fault)


def _around_the_fault() -> Column:
    """Return whether a gap belongs to this fault (rule 1) and something was missed in it (rule 3).

    `availability` has the rules.
    """
    missed_something = F.col("after_us").isNotNull() | F.col("pending_us").isNotNull()
    is_last_fault = F.col("until_us") >= F.col("end_us")
    ended_before_next_fault = F.coalesce(F.col("after_us") <= F.col("until_us"), F.lit(False))
    began_before_fault = F.col("before_us") <= F.col("fault_us")
    belongs_to_fault = is_last_fault | ended_before_next_fault | began_before_fault
    began_before_next_fault = F.col("before_us") < F.col("until_us")
    return began_before_next_fault & belongs_to_fault & missed_something


def _length(condition: Column) -> Column:
    """Return the sort key by which gaps are ranked: their length, then their beginning.

    An open gap counts from the moment at which the subject first missed something. If `condition`
    is false, the key is null, and the gap is not chosen.
    """
    closed = F.col("after_us") - F.col("before_us")
    since_us = F.greatest("pending_us", "before_us")
    open_for = F.greatest(F.col("end_us") - since_us, F.lit(0))
    return F.when(condition, _earliest(F.coalesce(closed, open_for)))


def _earliest(length: Column) -> Column:
    """Return a sort key that is greatest for the longest gap, and for the earliest of several."""
    return F.struct(length.alias("length_us"), (-F.col("before_us")).alias("earlier"))


def _ends_of_gap() -> Column:
    """Return both ends of a gap as one value, so that an aggregation picks them together."""
    return F.struct("before_us", "after_us").cast(_ENDS_TYPE)


def _picked(gaps_per_fault: DataFrame, picked: Column, subject_kind: str) -> DataFrame:
    """Return the picked gap of each fault and subject; a subject without a gap has no row."""
    return (
        gaps_per_fault.groupBy("run", "fault", "group", "subject")
        .agg(picked.alias("gap"))
        .where(F.col("gap").isNotNull())
        .withColumn("subject_kind", F.lit(subject_kind))
        .select(*_SUBJECT, "gap.before_us", "gap.after_us")
    )
