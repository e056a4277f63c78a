"""The table `group_states`: in which state each group was, and from when to when.

A row is one stay in a state, such as "readers was PreparingRebalance on broker-1 from 20.1 s to
23.4 s". A state ends when one of these happens:

- the group enters another state;
- the broker unloads the group, because another broker leads the group's offsets partition;
- the broker's process ends.

If an old coordinator does not know yet that it was replaced, two brokers have the group at the same
time. Then the table has the states of the group on each of the two brokers.
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
    the same time, their intervals overlap.

    `events` has one row per event; `groups` and `runs` are
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
    - `partition` if the trace does not name the group's offsets partition;
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
    """One row per step: an event about a group or an offsets partition on a broker.

    - `group`: null in a step of a partition.
    - `state`: the state that the group enters; null in a step that changes no state.
    - `counted`: number of members that a GROUP_LOADED or GENERATION_STARTED lists; null in all
      other steps, and null if the list is missing.
    """
    details = detail("state", "to", "members", of=(GroupLoadedDetail, TransitionDetail))
    partitions_of_groups = F.broadcast(
        groups.select("run", "group", F.col("partition").alias("group_partition"))
    )
    size = F.when(_lists_members(), F.size("details.members"))
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
            # `cause_text` is the cause as a sentence for people. A row may have only `cause`, which
            # is one word.
            F.coalesce("cause_text", "cause").alias("cause"),
            # The state is in the field `state` of a GROUP_LOADED, and in `to` of a GROUP_STATE.
            F.coalesce("details.state", "details.to").alias("state"),
            # If the list is missing, the size is -1 or null, and `counted` is null.
            F.when(size >= 0, size).alias("counted"),
        )
    )


def _intervals(steps: DataFrame) -> DataFrame:
    """One row per state that a group entered on a coordinator.

    `next_us` is when the coordinator ended the state: it loaded the group again, moved it to
    another state, or unloaded the group's partition. The column is null if the coordinator did none
    of this.
    """
    of_group = Window.partitionBy(*_GROUP).orderBy("seq")
    of_partition = Window.partitionBy(*_LIFE, "partition").orderBy("seq")
    is_load = _is(TraceKind.LOAD_STARTED) | _is(TraceKind.LOAD_COMPLETED)
    unloaded = F.when(_is(TraceKind.UNLOAD_COMPLETED), F.col("time_us"))
    entered = _is(TraceKind.GROUP_LOADED) | _is(TraceKind.GROUP_STATE)
    return (
        _with_members(steps)
        # `epoch` is the leader epoch in which the broker last loaded the partition.
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
    """Add the number of members after each step; null if the number is not known.

    Some steps list all members. From such a step on, each member that is added or removed changes
    the number. A new group begins with 0 members, and a group that becomes Dead has 0 members.
    """
    # `number_set` tells the number of members that a step sets:
    # - A step with a list of members: a struct in which `n` is the length of the list. If the list
    #   is missing, there is a struct, too, and its `n` is null.
    # - A change to Dead: a struct in which `n` is 0.
    # - Any other step: null.
    is_death = _is(TraceKind.GROUP_STATE) & (F.col("state") == DEAD)
    number = F.when(is_death, 0).otherwise(F.col("counted"))
    number_set = F.when(is_death | _lists_members(), F.struct(number.alias("n")))
    change = F.when(_is(TraceKind.MEMBER_ADDED), 1).when(_is(TraceKind.MEMBER_REMOVED), -1)
    # The column `lists` counts the steps that have set the number so far. For example, it is 0 in
    # the first steps, 1 from the first step that sets the number, and 2 from the second step that
    # sets it. So the window `since_set`, which has the steps of one value of `lists`, begins at the
    # last step that set the number.
    so_far = _so_far(Window.partitionBy(*_GROUP))
    since_set = _so_far(Window.partitionBy(*_GROUP, "lists"))
    # As long as no step has set the number, the group is new, and began with 0 members.
    of_new_group = F.when(F.col("lists") == 0, 0)
    return (
        steps.withColumn("lists", F.count(number_set).over(so_far))
        # The column `base` is the number that was set last.
        .withColumn("base", F.last(number_set, ignorenulls=True).over(so_far))
        .withColumn("changes", F.coalesce(F.sum(change).over(since_set), F.lit(0)))
        .withColumn("members", (F.coalesce(of_new_group, "base.n") + F.col("changes")).cast("int"))
    )


def _with_end(intervals: DataFrame, died: DataFrame, runs: DataFrame) -> DataFrame:
    """Give each interval the earliest of its possible ends (`to_us`).

    `to_us` is null if the run ended before. Intervals that begin after the run's end are dropped.
    """
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
                    # If the trace has the death itself, `successor` is null. The process that lived
                    # at that moment has died. If the trace has only a later start of the node,
                    # `successor` is the incarnation that started. Its start proves that all older
                    # incarnations are dead.
                    & (death["successor"].isNull() | (death["successor"] > F.col("incarnation")))
                ),
            ),
            lambda death: death["died_us"],
        )
    )
    # An interval of Dead ends when it begins. So it has an end even at the very end of the run.
    dead = F.col("state") == DEAD
    end_us = F.when(dead, F.col("from_us")).otherwise(F.least("next_us", died_us))
    has_end = dead | (F.col("end_us") < F.col("run_end_us"))
    return (
        intervals.join(F.broadcast(deaths_of), ["run", "node"], "left")
        .join(F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us"))), "run")
        .where(F.col("from_us") <= F.col("run_end_us"))
        .withColumn("end_us", end_us)
        .withColumn("to_us", F.when(has_end, F.col("end_us")))
    )


def _lists_members() -> Column:
    """Return whether a step lists all members of the group."""
    return _is(TraceKind.GROUP_LOADED) | _is(TraceKind.GENERATION_STARTED)


def _so_far(window: WindowSpec) -> WindowSpec:
    """Return the window with the rows up to the current row, in the order of the broker's rows."""
    in_order = window.orderBy("seq")
    return in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _is(kind: TraceKind) -> Column:
    """Return whether a step is of a kind."""
    return F.col("kind") == kind.value
