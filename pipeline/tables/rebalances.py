"""The table `rebalances`: why each rebalance began, whom it removed or added, and how long it took.

A rebalance begins when the coordinator wants all members of a group to join again. When they have
joined, a new generation begins. The rebalance ends when the coordinator has stored the assignment
of the new generation. If the broker is no longer the coordinator by then, the rebalance has no end.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.tables.faults import with_latest_fault
from protocol.causes import RebalanceCause, RemovalCause
from protocol.trace import TraceKind
from protocol.trace_schema import RebalanceStartedDetail, TransitionDetail

_GROUP = ("run", "node", "incarnation", "group")
"""The columns that name a group on a coordinator. The process of a broker can be killed and started
again. An incarnation is the time from a start of the process to its end.
"""
_REBALANCE = (*_GROUP, "part", "nth")
"""The columns that name a rebalance; `_steps` explains `part` and `nth`."""


def rebalances(
    events: DataFrame,
    faults: DataFrame,
    groups: DataFrame,
    tenures: DataFrame,
    names: DataFrame,
) -> DataFrame:
    """List the rebalances that coordinators began.

    If a member is removed or added after a generation has begun, this belongs to the rebalance that
    leads to the next generation.

    `events` has one row per event; `faults` and `groups` are the tables; `tenures` is the table
    `coordinator_tenures`; `names` has one row per member id (`members.member_names`). Output grain:
    one row per run, group, broker and rebalance that the broker began.
    Columns:
    - `run`, `group`, `broker` (the coordinator), `leader_epoch` (in which it was the coordinator);
    - `generation`: the generation that ended; `new_generation`: the next generation;
    - `reason`: why the coordinator began the rebalance, as a RebalanceCause; `cause`: the same as a
      sentence;
    - `member`, `consumer`: the member that caused the rebalance: its member id, and its node;
    - `client_reason`: the reason that this member gave in its request;
    - `removed`: consumers whose member id was removed before the new generation;
      `removed_because`: the causes of these removals (RemovalCause), each of them once;
    - `added`: consumers that got a new member id before the new generation. A consumer that came
      back with another id is in `removed` and in `added`;
    - `store_error`: the error with which the coordinator failed to store the new assignment;
    - `fault`: the latest fault before the rebalance;
    - moments in microseconds on the run's clock: `started_us`, `joined_us` (the next generation
      began), `stable_us` (its assignment was stored);
    - in microseconds: `join_us` (started to joined), `sync_us` (joined to stable), `length_us`
      (started to stable).

    Nulls:
    - `fault` before the first fault (the group forms);
    - `new_generation`, `joined_us`, `stable_us`, and the lengths that begin or end with these, if
      another rebalance, the coordinator's end or the run's end came first;
    - `member`, `consumer` if no single member caused the rebalance;
    - `client_reason` if the request gave no reason;
    - `store_error` if the assignment was stored, or if the rebalance did not come so far;
    - `leader_epoch` if it is not known.

    `removed`, `removed_because` and `added` are empty lists if no member was removed or added.
    """
    steps = _steps(events)
    started = _started(steps).join(_changes(steps, names), list(_REBALANCE), "left")
    joined_us, stable_us = F.col("joined.time_us"), F.col("stable.time_us")
    # If a coordinator fails to store an assignment, it begins another rebalance for this reason.
    # The error is in the row about the start of that next rebalance (`restarted`).
    is_not_stored = F.col("restarted.cause") == RebalanceCause.ASSIGNMENT_NOT_STORED.value
    started_detail = detail("client_reason", of=RebalanceStartedDetail)
    no_names = F.array().cast("array<string>")
    return (
        with_latest_fault(_with_epoch(started, groups, tenures), faults, "time_us")
        .join(F.broadcast(names), ["run", "group", "member"], "left")
        .select(
            "run",
            "group",
            F.col("node").alias("broker"),
            "leader_epoch",
            "generation",
            F.col("joined.generation").alias("new_generation"),
            F.col("cause").alias("reason"),
            "member",
            F.coalesce("consumer", F.nullif("member", F.lit(""))).alias("consumer"),
            F.col("cause_text").alias("cause"),
            started_detail.getField("client_reason").alias("client_reason"),
            F.coalesce("removed", no_names).alias("removed"),
            F.coalesce("removed_because", no_names).alias("removed_because"),
            F.coalesce("added", no_names).alias("added"),
            F.when(is_not_stored, F.col("restarted.error")).alias("store_error"),
            "fault",
            F.col("time_us").alias("started_us"),
            joined_us.alias("joined_us"),
            stable_us.alias("stable_us"),
            (joined_us - F.col("time_us")).alias("join_us"),
            (stable_us - joined_us).alias("sync_us"),
            (stable_us - F.col("time_us")).alias("length_us"),
        )
    )


def _steps(events: DataFrame) -> DataFrame:
    """One row per step (event about a rebalance), with the columns that name the rebalance.

    A group's steps on one coordinator are divided into parts. A part ends when a generation starts,
    when the group is loaded, or when the group becomes Empty or Dead. `part` is the number of the
    part, from 0. `nth` is the number of the rebalance in the part, from 1. For example, these five
    steps are one part with two rebalances:

    - A member is removed (`nth` 1). It belongs to the first rebalance, which starts only now.
    - A rebalance starts (`nth` 1).
    - A member is added (`nth` 1).
    - Another rebalance starts (`nth` 2).
    - A generation starts (`nth` 2).
    """
    kinds = (
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.ASSIGNMENT_STORED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.GROUP_STATE,
        TraceKind.GROUP_LOADED,
    )
    new_state = detail("to", of=TransitionDetail).getField("to")
    becomes_empty = _is(TraceKind.GROUP_STATE) & new_state.isin("Empty", "Dead")
    ends_part = _is(TraceKind.GENERATION_STARTED) | _is(TraceKind.GROUP_LOADED) | becomes_empty
    in_order = Window.partitionBy(*_GROUP).orderBy("seq")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    in_part = (
        Window.partitionBy(*_GROUP, "part")
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    starts = F.count_if(_is(TraceKind.REBALANCE_STARTED)).over(in_part)
    return (
        of_kind(events, *kinds)
        .withColumn("ends_part", ends_part)
        # Changes to other states than Empty and Dead are no steps.
        .where(~_is(TraceKind.GROUP_STATE) | F.col("ends_part"))
        .withColumn("part", F.coalesce(F.count_if("ends_part").over(before), F.lit(0)))
        # Before the first rebalance of a part, `starts` is 0, and `nth` is 1 nevertheless.
        .withColumn("nth", F.greatest(starts, F.lit(1)))
    )


def _started(steps: DataFrame) -> DataFrame:
    """One row per rebalance, with three later steps as structs.

    - `joined`: the new generation of the rebalance began.
    - `stable`: the assignment of the new generation was stored.
    - `restarted`: the coordinator began the next rebalance.

    A step that did not come is null.
    """
    # The window is sorted backwards in time: it has all later steps of the group, and the step
    # directly after the current row comes last in it. So `last` finds the next step of a kind. A
    # window that is sorted forwards would give the same result, but would take quadratic time.
    backwards = (
        Window.partitionBy(*_GROUP)
        .orderBy(F.desc("seq"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )

    def next_of(kind: TraceKind) -> Column:
        """Return the next step of a kind after a row, as a struct; null if there is none."""
        step = F.struct("seq", "time_us", "generation", "cause", "error")
        return F.last(F.when(_is(kind), step), ignorenulls=True).over(backwards)

    started = (
        steps.withColumn("restarted", next_of(TraceKind.REBALANCE_STARTED))
        .withColumn("joined", next_of(TraceKind.GENERATION_STARTED))
        .withColumn("stable", next_of(TraceKind.ASSIGNMENT_STORED))
        .where(_is(TraceKind.REBALANCE_STARTED))
    )
    # If a generation or an assignment comes after the start of the next rebalance, it belongs to
    # the next rebalance.
    return started.withColumns({step: _unless_restarted(step) for step in ("joined", "stable")})


def _changes(steps: DataFrame, names: DataFrame) -> DataFrame:
    """One row per rebalance for which members were removed or added, with their consumers."""
    removed = _is(TraceKind.MEMBER_REMOVED)
    added = _is(TraceKind.MEMBER_ADDED)
    # A static member that restarts gets a new member id, but it stays the same member.
    is_replacement = F.col("cause").eqNullSafe(F.lit(RemovalCause.STATIC_MEMBER_REPLACED.value))
    consumer_or_id = F.coalesce("consumer", "member")
    return (
        steps.where((removed | added) & ~is_replacement)
        .join(F.broadcast(names), ["run", "group", "member"], "left")
        .groupBy(*_REBALANCE)
        .agg(
            F.sort_array(F.collect_set(F.when(removed, consumer_or_id))).alias("removed"),
            F.sort_array(F.collect_set(F.when(removed, F.col("cause")))).alias("removed_because"),
            F.sort_array(F.collect_set(F.when(added, consumer_or_id))).alias("added"),
        )
    )


def _with_epoch(started: DataFrame, groups: DataFrame, tenures: DataFrame) -> DataFrame:
    """Add `leader_epoch`: in which epoch the coordinator began the rebalance.

    This is the epoch of the tenure that the broker began last before the rebalance.
    """
    served = groups.select("run", "group", "partition").join(tenures, ["run", "partition"])
    epochs = served.select(
        "run",
        "group",
        F.col("broker").alias("node"),
        "incarnation",
        F.struct("start_us", "leader_epoch").alias("tenure"),
    )
    life = ["run", "group", "node", "incarnation"]
    tenures_of_life = epochs.groupBy(*life).agg(
        F.sort_array(F.collect_list("tenure")).alias("tenures")
    )
    # Index -1 is the last element of a list; it is null if the list is empty.
    so_far = F.filter("tenures", lambda tenure: tenure["start_us"] <= F.col("time_us"))
    latest = F.try_element_at(so_far, F.lit(-1))
    return started.join(F.broadcast(tenures_of_life), life, "left").withColumn(
        "leader_epoch", latest.getField("leader_epoch")
    )


def _is(kind: TraceKind) -> Column:
    """Return whether a row is of a kind."""
    return F.col("kind") == kind.value


def _unless_restarted(step: str) -> Column:
    """Return a step, or null if the coordinator began the next rebalance before the step."""
    next_start = F.col("restarted.seq")
    return F.when(next_start.isNull() | (F.col(f"{step}.seq") < next_start), F.col(step))
