"""Whether each fault moved the coordinator of each group, and to which broker.

This module makes one row for each fault and each group. Several tables are computed from these
rows. A row also tells which coordinators followed later, and when the next fault affected the
group: changes of the group up to this moment count as effects of the fault.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def group_failovers(
    faults: DataFrame, groups: DataFrame, broker_phases: DataFrame, tenures: DataFrame
) -> DataFrame:
    """Join every fault with every group of its run.

    `broker_phases` has one row per offsets partition that a fault moved, and `tenures` one row per
    tenure. Output grain: one row per run, fault and group.
    Columns:
    - `run`, `fault`, `group`, `partition` (the group's offsets partition);
    - `affected`: the fault lists the group as affected, or moved its partition;
    - `moved`: the fault gave the partition a leader in a new epoch;
    - `old_leader`: the coordinator before the fault; `coordinator`: the leader of the new epoch,
      or `old_leader` if the fault did not move the partition;
    - `later`: the brokers that coordinated the group in the new epoch or in a later epoch, as a
      list of structs. The field `broker` names a broker. The field `start_us` is the moment at
      which this broker had loaded the partition, or the moment of its election if the trace lacks
      the load;
    - `fault_us`, `decided_us` (the election), `active_us` in microseconds on the run's clock;
    - `until_us`: the moment of the first later fault that affects the same group, or the run's
      end.

    Nulls: `decided_us`, `later` if the fault did not move the partition; `active_us` if no new
    coordinator loaded the partition; `coordinator` if the partition never had a coordinator.
    """
    pairs = faults.join(groups.select("run", "group", "partition"), "run").select(
        "run",
        "fault",
        "group",
        "partition",
        F.col("injected_us").alias("fault_us"),
        F.col("until_us").alias("next_fault_us"),
        F.array_contains("groups", F.col("group")).alias("named"),
    )
    moves = broker_phases.select(
        "run",
        "fault",
        "partition",
        "leader_epoch",
        "old_leader",
        "new_leader",
        "decided_us",
        "active_us",
    )
    # The coordinator before the fault is the broker with the highest leader epoch. It need not be
    # the broker that became active last: a broker that has lost its leadership may end its load
    # later than its successor.
    latest_brokers = (
        faults.select("run", "fault", "injected_us")
        .join(tenures.select("run", "partition", "broker", "leader_epoch", "start_us"), "run")
        .where(F.col("start_us") <= F.col("injected_us"))
        .groupBy("run", "fault", "partition")
        .agg(F.max_by("broker", F.struct("leader_epoch", "start_us")).alias("latest_broker"))
    )
    # `decided_us` is a column of `moves`. It is null if the fault did not move the partition.
    moved = F.col("decided_us").isNotNull()
    # The window begins a microsecond after the fault. So of two faults at the same moment, neither
    # is the next fault of the other.
    later_faults = (
        Window.partitionBy("run", "group")
        .orderBy("fault_us")
        .rangeBetween(1, Window.unboundedFollowing)
    )
    whole_run = Window.partitionBy("run")
    return (
        pairs.join(moves, ["run", "fault", "partition"], "left")
        .join(latest_brokers, ["run", "fault", "partition"], "left")
        .withColumn("affected", F.col("named") | moved)
        .join(_later(moves, tenures), ["run", "fault", "partition"], "left")
        .select(
            "run",
            "fault",
            "group",
            "partition",
            "affected",
            moved.alias("moved"),
            # If the fault did not move the partition, the coordinator before the fault stays.
            F.coalesce("old_leader", "latest_broker").alias("old_leader"),
            F.coalesce("new_leader", "latest_broker").alias("coordinator"),
            "later",
            "fault_us",
            "decided_us",
            "active_us",
            F.coalesce(
                F.min(F.when(F.col("affected"), F.col("fault_us"))).over(later_faults),
                # If no later fault affects the group, this is the run's end. In the table `faults`,
                # `until_us` (here `next_fault_us`) of the run's last fault is the run's end.
                F.max("next_fault_us").over(whole_run),
            ).alias("until_us"),
        )
    )


def _later(moves: DataFrame, tenures: DataFrame) -> DataFrame:
    """One row per move of a partition: its new and its later coordinators, and when each began."""
    move = ["run", "fault", "partition"]
    served = tenures.select(
        "run", "partition", F.col("leader_epoch").alias("epoch"), "broker", "start_us"
    )
    # `epoch` is the leader epoch of the tenure, and `leader_epoch` is the leader epoch of the move.
    loaded = moves.join(served, ["run", "partition"]).where(F.col("epoch") >= F.col("leader_epoch"))
    # If the trace does not have the load of the new leader, its election counts as the start.
    elected = moves.where(F.col("active_us").isNull()).select(
        *move, F.col("new_leader").alias("broker"), F.col("decided_us").alias("start_us")
    )
    return (
        loaded.select(*move, "broker", "start_us")
        .unionByName(elected)
        .groupBy(*move)
        .agg(F.collect_list(F.struct("broker", "start_us")).alias("later"))
    )
