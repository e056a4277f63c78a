"""The table `groups`: in which partition of `__consumer_offsets` is each group stored?

The broker that leads this partition (an offsets partition) is the group's coordinator. So with this
table, an election of a partition's leader tells which groups got a new coordinator.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceKind

MEMBER_KINDS = (
    TraceKind.MEMBER_STATE,
    TraceKind.PARTITIONS_ASSIGNED,
    TraceKind.RECORDS_CONSUMED,
    TraceKind.OFFSETS_COMMITTED,
    TraceKind.COMMIT_FAILED,
)
"""Kinds of rows that only a member of a group writes. COORDINATOR_FOUND is not listed, because an
administrator also looks for the coordinator, but joins no group.
"""

_PARTITION_KINDS = (
    TraceKind.LEADER_ELECTED,
    TraceKind.BECAME_LEADER,
    TraceKind.BECAME_FOLLOWER,
    TraceKind.LOAD_COMPLETED,
)
"""Kinds of rows that can be about an offsets partition. By these rows, the partitions are counted.
"""
_PREFIX = f"{CONSUMER_OFFSETS}-"
"""Beginning of the name of every offsets partition. The number of the partition follows."""


def in_offsets_topic() -> Column:
    """Return whether a row's `partition` is one of `__consumer_offsets`."""
    return F.col("partition").startswith(_PREFIX)


def groups(events: DataFrame) -> DataFrame:
    """Find each group's offsets partition.

    If a coordinator has loaded the group from a partition, its row about the load names this
    partition. Otherwise the partition is computed as Kafka does it for FindCoordinator: by a hash
    of the group's name, modulo the number of offsets partitions. `events` has one row per event.
    Output grain: one row per run and group that has consumers. Columns: `run`, `group`, `partition`
    (`__consumer_offsets-<n>`), `consumers` (how many nodes were members at some time). Nulls:
    `partition` if the run names no offsets partition at all. Source: Kafka
    GroupMetadataManager.partitionFor; protocol.partitioner computes the same in Python.
    """
    members = of_kind(events, *MEMBER_KINDS).where(F.col("group").isNotNull())
    consumers = members.groupBy("run", "group").agg(
        F.size(F.collect_set("node")).alias("consumers")
    )
    # All loads of a group name the same partition, and `max` picks its name.
    loaded = of_kind(events, TraceKind.GROUP_LOADED).groupBy("run", "group")
    loaded_from = loaded.agg(F.max("partition").alias("loaded_from"))
    # No row tells how many offsets partitions there are. If the trace mentions
    # `__consumer_offsets-3`, there are at least four.
    number = F.substring_index("partition", "-", -1).cast("int")
    mentioned = of_kind(events, *_PARTITION_KINDS).where(in_offsets_topic()).groupBy("run")
    partitions = mentioned.agg((F.max(number) + 1).alias("partitions"))
    return (
        consumers.join(loaded_from, ["run", "group"], "left")
        .join(F.broadcast(partitions), "run", "left")
        .select(
            "run",
            "group",
            F.coalesce(
                "loaded_from",
                F.concat(F.lit(_PREFIX), offsets_partition_of(F.col("group"), F.col("partitions"))),
            ).alias("partition"),
            "consumers",
        )
    )


def offsets_partition_of(group: Column, partitions: Column) -> Column:
    """Return `abs(hashCode(group)) % partitions`, the number of the group's offsets partition.

    `hashCode` is Java's: 32 bits, over the UTF-16 code units of the text. Spark computes in 64
    bits, so this function cuts the value to 32 bits after each code unit. `abs(-2**31)` is 0, as in
    Kafka's Utils.abs.
    """
    # Four hexadecimal digits for each code unit.
    text = F.hex(F.encode(group, "UTF-16BE"))
    units = F.transform(
        F.regexp_extract_all(text, F.lit("[0-9A-F]{4}"), F.lit(0)),
        lambda unit: F.conv(unit, 16, 10).cast("long"),
    )
    # For each unit, Java computes `hash = 31 * hash + unit`. The mask keeps the lowest 32 bits.
    unsigned = F.aggregate(
        units,
        F.lit(0).cast("long"),
        lambda value, unit: (value * 31 + unit).bitwiseAND(F.lit(0xFFFFFFFF)),
    )
    # In Java's 32 bits, a value of 2**31 or more is a negative number: its magnitude is
    # 2**32 - unsigned.
    magnitude = (
        F.when(unsigned == 1 << 31, F.lit(0))
        .when(unsigned > 1 << 31, (1 << 32) - unsigned)
        .otherwise(unsigned)
    )
    return (magnitude % partitions).cast("int")
