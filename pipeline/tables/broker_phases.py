"""The table `broker_phases`: where the time went until a new coordinator was active.

A fault, such as the crash of a broker, can give a partition of `__consumer_offsets` a new leader,
and so its groups a new coordinator. Until the new coordinator is active, four phases follow one
another (the broker chain):

1. detect: from the fault until the controller elects a new leader;
2. publish: until the new leader has read in the controller's metadata that it leads;
3. load wait: until the new leader begins to load the partition. It may have to wait, because a
   broker loads one partition at a time;
4. load: until the new leader has read all groups and offsets, and serves them.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.groups import in_offsets_topic
from protocol.trace import TraceKind
from protocol.trace_schema import LoadCompletedDetail


def broker_phases(events: DataFrame, faults: DataFrame, groups: DataFrame) -> DataFrame:
    """Follow the move of each offsets partition, from the fault to the new active coordinator.

    A fault is a possible cause of a later election if the fault hit the partition's leader, or
    lists the partition as affected. Of several possible causes, the latest counts. If a fault
    caused several elections, the first election that found a leader counts. This election
    can find the old leader again, which then loads the partition once more, in the new epoch.

    `events` has one row per event; `faults` and `groups` are the tables. Output grain: one row per
    run, fault and offsets partition that got a leader in a new epoch because of the fault.
    Columns:
    - `run`, `fault`, `partition`, `old_leader`, `new_leader`;
    - `leader_epoch`: the epoch of the new leader;
    - `groups`: the consumer groups of this offsets partition;
    - moments in microseconds on the run's clock: `fault_us`, `decided_us` (the controller elected
      the new leader), `applied_us` (the new leader applied its election), `load_started_us`,
      `active_us` (the load was complete);
    - phases in microseconds, each from one of these moments to the next: `detect_us`, `publish_us`,
      `load_wait_us`, `load_us`;
    - `records`, `bytes`: how much the load read.

    Nulls: a moment that the trace does not hold, and the phases that begin or end with it;
    `old_leader` if no earlier leader is known.
    """
    elections = _first_elections(_elections(events), faults)
    steps = _steps_of_new_leaders(events)
    groups_of_partition = groups.groupBy("run", "partition").agg(
        F.sort_array(F.collect_list("group")).alias("groups")
    )
    return (
        elections.join(steps, ["run", "partition", "leader_epoch", "new_leader"], "left")
        .join(groups_of_partition, ["run", "partition"], "left")
        .select(
            "run",
            "fault",
            "partition",
            "old_leader",
            "new_leader",
            "leader_epoch",
            F.coalesce("groups", F.array().cast("array<string>")).alias("groups"),
            "fault_us",
            "decided_us",
            "applied_us",
            "load_started_us",
            "active_us",
            (F.col("decided_us") - F.col("fault_us")).alias("detect_us"),
            (F.col("applied_us") - F.col("decided_us")).alias("publish_us"),
            (F.col("load_started_us") - F.col("applied_us")).alias("load_wait_us"),
            (F.col("active_us") - F.col("load_started_us")).alias("load_us"),
            "records",
            "bytes",
        )
    )


def _elections(events: DataFrame) -> DataFrame:
    """One row per election of an offsets partition, with the last leader before it."""
    # `peer` is the leader that was elected. It is empty if the election found no leader.
    # `old_leader` is the last leader before the election: `ignorenulls` skips the elections without
    # a leader.
    leader = F.nullif("peer", F.lit(""))
    before = (
        Window.partitionBy("run", "partition")
        .orderBy("time_us", "leader_epoch")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        of_kind(events, TraceKind.LEADER_ELECTED)
        .where(in_offsets_topic())
        .select(
            "run",
            "partition",
            "leader_epoch",
            F.col("time_us").alias("decided_us"),
            leader.alias("new_leader"),
            F.last(leader, ignorenulls=True).over(before).alias("old_leader"),
        )
    )


def _first_elections(elections: DataFrame, faults: DataFrame) -> DataFrame:
    """One row per fault and partition: the fault's first election that found a leader."""
    causes = F.broadcast(
        faults.select(
            "run",
            "fault",
            F.col("injected_us").alias("fault_us"),
            "nodes",
            F.col("partitions").alias("hit_partitions"),
        )
    )
    # The rules of `broker_phases`: which faults can be the cause of an election.
    hit_partition = F.array_contains("hit_partitions", F.col("partition"))
    # False if no earlier leader is known (`old_leader` is null).
    hit_leader = F.coalesce(F.array_contains("nodes", F.col("old_leader")), F.lit(False))
    possible_cause = (F.col("fault_us") <= F.col("decided_us")) & (hit_partition | hit_leader)
    faults_of_election = Window.partitionBy("run", "partition", "leader_epoch").orderBy(
        F.desc("fault_us"), F.desc("fault")
    )
    elections_of_fault = Window.partitionBy("run", "partition", "fault").orderBy(
        "decided_us", "leader_epoch"
    )
    return (
        elections.join(causes, "run")
        .where(possible_cause)
        .withColumn("nth_fault", F.row_number().over(faults_of_election))
        # Elections that found no leader are dropped here. So they do not count as the fault's first
        # election.
        .where((F.col("nth_fault") == 1) & F.col("new_leader").isNotNull())
        .withColumn("nth_election", F.row_number().over(elections_of_fault))
        .where(F.col("nth_election") == 1)
    )


def _steps_of_new_leaders(events: DataFrame) -> DataFrame:
    """One row per broker that led an offsets partition in an epoch, with the moments of its load.

    `records` and `bytes` tell how much the load read.
    """
    kinds = (TraceKind.BECAME_LEADER, TraceKind.LOAD_STARTED, TraceKind.LOAD_COMPLETED)
    completed = F.col("kind") == TraceKind.LOAD_COMPLETED.value
    sizes = detail("records", "bytes", of=LoadCompletedDetail)
    return (
        of_kind(events, *kinds)
        .where(in_offsets_topic())
        .groupBy("run", "partition", "leader_epoch", F.col("node").alias("new_leader"))
        .agg(
            _first(TraceKind.BECAME_LEADER).alias("applied_us"),
            _first(TraceKind.LOAD_STARTED).alias("load_started_us"),
            _first(TraceKind.LOAD_COMPLETED).alias("active_us"),
            # A broker can load a partition twice in an epoch. The first LOAD_COMPLETED counts.
            F.min_by(F.when(completed, sizes), F.when(completed, F.col("time_us"))).alias("read"),
        )
        .select("*", "read.records", "read.bytes")
    )


def _first(kind: TraceKind) -> Column:
    """Return the time of the first row of a kind."""
    return F.min(F.when(F.col("kind") == kind.value, F.col("time_us")))
