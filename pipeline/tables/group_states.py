"""The table `group_states`: in which state was each group, from when to when?

A row is one stay in a state, such as "readers was PreparingRebalance on broker-1 from 20.1 s to
23.4 s". A state ends with the next one, when the broker unloads the group because another broker
leads, or when the broker's process ends. If an old coordinator does not know yet that it was
replaced, two brokers hold the group at the same time, and the table has the states on both.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.lives import deaths
from protocol.trace import TraceKind
from protocol.trace_schema import GroupLoadedDetail, TransitionDetail

DEAD = "Dead"
"""The state that a group enters when its coordinator deletes it."""
_LIFE = ("run", "node", "incarnation")
"""The columns that name a broker, from one start of its process to its end (an incarnation)."""
_GROUP = (*_LIFE, "group")
"""The columns that name a group on such a broker."""
_GROUP_KINDS = (
    TraceKind.GROUP_LOADED,
    TraceKind.GROUP_STATE,
    TraceKind.GENERATION_STARTED,
    TraceKind.MEMBER_ADDED,
    TraceKind.MEMBER_REMOVED,
)
"""Kinds of rows about a group."""
_PARTITION_KINDS = (
    TraceKind.LOAD_STARTED,
    TraceKind.LOAD_COMPLETED,
    TraceKind.UNLOAD_COMPLETED,
)
"""Kinds of rows about an offsets partition."""


def group_states(events: DataFrame, groups: DataFrame, runs: DataFrame) -> DataFrame:
    """Follow each group through its states, separately on each coordinator.

    An interval begins when a coordinator loads the group or moves it to another state. It ends with
    the first of these: the next load or change of state, the unload of the group's offsets
    partition, the end of the broker's process, the run's end. If two coordinators have the group at
    the same time, their intervals overlap. `events` has one row per event; `groups` and `runs` are
    the tables. Output grain: one row per run, group, broker, incarnation and interval in which that
    coordinator had the group in one state.
    Columns:
    - `run`, `group`, `partition` (its offsets partition), `broker` (the coordinator),
      `incarnation`, `leader_epoch` (in which the broker served the partition);
    - `state`: Empty (no members), PreparingRebalance (members rejoin), CompletingRebalance (members
      ask for their partitions), Stable or Dead;
    - `generation`: in PreparingRebalance, it is the generation that has ended;
    - `members`: the number of the group's members when the interval began;
    - `cause`: the coordinator's reason for entering the state;
    - `from_us`, `to_us`: beginning and end of the interval, in microseconds on the run's clock;
    - `length_us`: microseconds, up to the run's end if the state lasted so long. An interval of
      Dead has length 0, because the coordinator forgets the group in the same moment.

    Nulls:
    - `partition` if the run names no offsets partition;
    - `leader_epoch` if the trace lacks the coordinator's load;
    - `members` if the trace lacks the members that were loaded;
    - `cause` of a loaded state;
    - `to_us` if the state still lasted when the run ended.
    """
    steps = _steps(events, groups)
    intervals = _with_end(_intervals(steps), deaths(events), runs)
    return intervals.select(
        "run",
        "group",
        "partition",
        F.col("node").alias("broker"),
        "incarnation",
        "leader_epoch",
        "state",
        "generation",
        "members",
        "cause",
        "from_us",
        "to_us",
        (F.coalesce("to_us", "run_end_us") - F.col("from_us")).alias("length_us"),
    )


def _steps(events: DataFrame, groups: DataFrame) -> DataFrame:
    """One row per event about a group or an offsets partition on a broker (a step).

    - `group`: null in a step of a partition.
    - `state`: the state that the group enters; null in a step that changes no state.
    - `counted`: how many members a GROUP_LOADED or GENERATION_STARTED lists; null in other steps.
    """
    details = detail("state", "to", "members", of=(GroupLoadedDetail, TransitionDetail))
    partitions_of_groups = F.broadcast(
        groups.select("run", "group", F.col("partition").alias("group_partition"))
    )
    listed = F.when(
        _is(TraceKind.GROUP_LOADED) | _is(TraceKind.GENERATION_STARTED), F.size("details.members")
    )
    return (
        of_kind(events, *_GROUP_KINDS, *_PARTITION_KINDS)
        .withColumn("details", details)
        .join(partitions_of_groups, ["run", "group"], "left")
        .select(
            *_GROUP,
            # Most rows about a group do not name its partition, which is known from `groups`.
            F.coalesce("group_partition", "partition").alias("partition"),
            "seq",
            "time_us",
            "kind",
            "generation",
            "leader_epoch",
            F.coalesce("cause_text", "cause").alias("cause"),
            F.coalesce("details.state", "details.to").alias("state"),
            # Without a list, `size` can return -1.
            F.when(listed >= 0, listed).alias("counted"),
        )
    )


def _intervals(steps: DataFrame) -> DataFrame:
    """One row per state that a group entered on a coordinator.

    `next_us` is when the coordinator ended it: by its next load or change of state of the group, or
    by the unload of the group's partition. It is null if it did none of this.
    """
    of_group = Window.partitionBy(*_GROUP).orderBy("seq")
    of_partition = Window.partitionBy(*_LIFE, "partition").orderBy("seq")
    is_load = _is(TraceKind.LOAD_STARTED) | _is(TraceKind.LOAD_COMPLETED)
    unloaded = F.when(_is(TraceKind.UNLOAD_COMPLETED), F.col("time_us"))
    entered = _is(TraceKind.GROUP_LOADED) | _is(TraceKind.GROUP_STATE)
    return (
        _with_members(steps)
        # The epoch is that of the broker's last load of the partition.
        .withColumn(
            "epoch",
            F.last(F.when(is_load, F.col("leader_epoch")), ignorenulls=True).over(
                of_partition.rowsBetween(Window.unboundedPreceding, Window.currentRow)
            ),
        )
        # The first unload of the partition after the row.
        .withColumn(
            "unloaded_us",
            F.min(unloaded).over(of_partition.rowsBetween(1, Window.unboundedFollowing)),
        )
        .where(F.col("group").isNotNull() & entered & F.col("state").isNotNull())
        .withColumn("next_us", F.lead("time_us").over(of_group))
        .select(
            *_GROUP,
            "partition",
            F.col("epoch").alias("leader_epoch"),
            "state",
            "generation",
            "members",
            "cause",
            F.col("time_us").alias("from_us"),
            F.least("next_us", "unloaded_us").alias("next_us"),
        )
    )


def _with_members(steps: DataFrame) -> DataFrame:
    """Add the number of members after each step, as far as it is known.

    Some steps list all members. After such a step, members that are added and removed are counted
    on. A new group begins with 0 members, and a group that becomes Dead has 0 members.
    """
    dead = _is(TraceKind.GROUP_STATE) & (F.col("state") == DEAD)
    listed = _is(TraceKind.GROUP_LOADED) | _is(TraceKind.GENERATION_STARTED)
    # `base` is the number of members that a step sets: the length of its list, or 0 if it is Dead.
    # It is null for all other steps. It is a struct, so that a step whose list is missing can be
    # told from these: then `base` is not null, but its field `n` is.
    base = F.when(dead | listed, F.struct(F.when(dead, 0).otherwise(F.col("counted")).alias("n")))
    change = F.when(_is(TraceKind.MEMBER_ADDED), 1).when(_is(TraceKind.MEMBER_REMOVED), -1)
    # `lists` counts the steps so far that set the number. It is the same for such a step and for
    # all steps until the next one. So the window `since` begins at the last step that set the
    # number.
    so_far = _so_far(Window.partitionBy(*_GROUP))
    since = _so_far(Window.partitionBy(*_GROUP, "lists"))
    # Before the first such step the group is new, and has 0 members.
    first = F.when(F.col("lists") == 0, 0)
    return (
        steps.withColumn("lists", F.count(base).over(so_far))
        .withColumn("base", F.last(base, ignorenulls=True).over(so_far))
        .withColumn("changes", F.coalesce(F.sum(change).over(since), F.lit(0)))
        .withColumn("members", (F.coalesce(first, "base.n") + F.col("changes")).cast("int"))
    )


def _with_end(intervals: DataFrame, died: DataFrame, runs: DataFrame) -> DataFrame:
    """Give each interval the earliest of its possible ends, unless the run ended before."""
    # The deaths of a node become one list, so that the join below does not multiply the intervals.
    deaths_of = died.groupBy("run", "node").agg(
        F.collect_list(F.struct("died_us", "successor")).alias("deaths")
    )
    died_us = F.array_min(
        F.transform(
            F.filter(
                "deaths",
                lambda death: (
                    (death["died_us"] >= F.col("from_us"))
                    # A death without a `successor` is that of the process that lived then. With
                    # one, it is known from the start of this incarnation, which proves only that
                    # older ones are dead.
                    & (death["successor"].isNull() | (death["successor"] > F.col("incarnation")))
                ),
            ),
            lambda death: death["died_us"],
        )
    )
    # An interval of Dead ends when it begins.
    dead = F.col("state") == DEAD
    end_us = F.when(dead, F.col("from_us")).otherwise(F.least("next_us", died_us))
    return (
        intervals.join(F.broadcast(deaths_of), ["run", "node"], "left")
        .join(F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us"))), "run")
        .where(F.col("from_us") <= F.col("run_end_us"))
        .withColumn("end_us", end_us)
        .withColumn(
            "to_us", F.when(dead | (F.col("end_us") < F.col("run_end_us")), F.col("end_us"))
        )
    )


def _so_far(window: WindowSpec) -> WindowSpec:
    in_order = window.orderBy("seq")
    return in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _is(kind: TraceKind) -> Column:
    return F.col("kind") == kind.value
