"""The table `ownership` in plain Python: which member owned which partition, from when to when?

An interval begins when a member gets its assignment. It ends when the member gives the partition
up, or dies. This is read from the members' own rows. So a member owns a partition as long as it
believes that it does, even if the coordinator gave the partition to another member long ago.
`pipeline.tables.ownership` computes the same with Spark.
"""

from collections.abc import Sequence

from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.trace import (
    Span,
    TableRow,
    Trace,
    detail_of,
    length_us,
    once_per_trace,
    within,
)
from protocol.trace import TraceKind, TraceRow

_KINDS = (
    TraceKind.RESPONSE_RECEIVED,
    TraceKind.PARTITIONS_ASSIGNED,
    TraceKind.PARTITIONS_REVOKED,
    TraceKind.PARTITIONS_LOST,
    TraceKind.POSITION_RESET,
    TraceKind.RECORDS_CONSUMED,
)
"""Kinds of a member's rows that begin or end an interval, or describe it."""


@once_per_trace
def ownership_of(trace: Trace) -> list[TableRow]:
    """Return every interval in which a member owned a partition."""
    table = []
    for (consumer, incarnation), rows in trace.lives(*_KINDS):
        for interval in _intervals(rows):
            if interval["from_us"] > trace.end_us:
                continue
            _end_at_death(trace, interval, consumer, incarnation)
            until_us = trace.end_us if interval["to_us"] is None else interval["to_us"]

            whole = Span(from_us=interval["from_us"], to_us=until_us)
            interval["length_us"] = until_us - interval["from_us"]
            interval["paused_us"] = length_us(within(trace.pauses(consumer), whole))
            interval["consumer"] = consumer
            interval["incarnation"] = incarnation
            interval["leader_epoch"] = _leader_epoch(trace, interval)
            table.append(interval)
    return table


def _intervals(rows: Sequence[TraceRow]) -> list[TableRow]:
    """Return the intervals in the rows of a consumer, from one start of its process to its end.

    If no row ends an interval, its `to_us` is None. Afterwards `_end_at_death` looks whether the
    consumer died.

    `start_offset` is the offset from which on the member read, and `position` is why it began
    there: `committed`, for example. Both are from the first POSITION_RESET of the interval. They
    are None if there is no such row.
    """
    intervals: list[TableRow] = []
    open_intervals: dict[tuple[str, str], TableRow] = {}  # by group and partition
    synced_with: dict[str, str | None] = {}  # the broker that answered each group's last SyncGroup
    for row in rows:
        group = str(row.group)
        if row.kind == TraceKind.RESPONSE_RECEIVED:
            if row.api == "SyncGroup" and row.error == "NONE":
                synced_with[group] = row.peer
        elif row.kind == TraceKind.PARTITIONS_ASSIGNED:
            for partition in detail_of(row)["partitions"]:
                # If the member had this partition already, its old interval ends, because a new
                # generation has begun.
                _give_up(open_intervals, (group, partition), row.time_us, "reassigned")
                open_intervals[group, partition] = {
                    "group": group,
                    "partition": partition,
                    "member": row.member,
                    "generation": row.generation,
                    # The coordinator that gave the assignment. If the row does not name it, the
                    # coordinator is the broker that answered the last SyncGroup.
                    "coordinator": row.peer or synced_with.get(group),
                    "position": None,
                    "start_offset": None,
                    "from_us": row.time_us,
                    "to_us": None,
                    "ended_by": "run end",
                    "records": 0,
                }
                intervals.append(open_intervals[group, partition])
        elif row.kind in (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST):
            ended_by = "lost" if row.kind == TraceKind.PARTITIONS_LOST else "revoked"
            for partition in detail_of(row)["partitions"]:
                _give_up(open_intervals, (group, partition), row.time_us, ended_by)
        elif (group, str(row.partition)) in open_intervals:
            # There is no open interval if the member has given the partition up. The member can
            # still process a batch then, but its records belong to no interval.
            interval = open_intervals[group, str(row.partition)]
            if row.kind == TraceKind.RECORDS_CONSUMED:
                interval["records"] += detail_of(row)["count"]
            elif interval["position"] is None:
                # POSITION_RESET is the only one of _KINDS that is left. This row is the first in
                # the interval.
                interval["position"], interval["start_offset"] = row.cause, row.offset
    return intervals


def _give_up(
    open_intervals: dict[tuple[str, str], TableRow],
    group_and_partition: tuple[str, str],
    at_us: int,
    ended_by: str,
) -> None:
    """End the open interval of a partition, if there is one."""
    interval = open_intervals.pop(group_and_partition, None)
    if interval is not None:
        interval["to_us"], interval["ended_by"] = at_us, ended_by


def _end_at_death(trace: Trace, interval: TableRow, consumer: str, incarnation: int) -> None:
    """End an interval earlier if its owner died or the run ended before the interval's own end.

    The `to_us` of an interval that lasted until the run's end is None.
    """
    death = trace.death(consumer, incarnation, interval["from_us"])
    # A row of the member may have ended the interval already. The earlier of the two ends counts.
    if death is not None and (interval["to_us"] is None or death.at_us < interval["to_us"]):
        interval["to_us"], interval["ended_by"] = death.at_us, death.by
    if interval["to_us"] is not None and interval["to_us"] >= trace.end_us:
        interval["to_us"], interval["ended_by"] = None, "run end"


def _leader_epoch(trace: Trace, interval: TableRow) -> int | None:
    """Return in which leader epoch the coordinator assigned an interval; None if it is not known.

    This is the epoch in which the coordinator last began to serve the group before the assignment.
    """
    tenures = [
        tenure
        for tenure in coordinator_tenures_of(trace)
        if tenure["partition"] == trace.groups().get(interval["group"])
        and tenure["broker"] == interval["coordinator"]
        and tenure["start_us"] <= interval["from_us"]
    ]
    if not tenures:
        return None
    last_tenure = max(tenures, key=lambda tenure: (tenure["start_us"], tenure["leader_epoch"]))
    epoch: int = last_tenure["leader_epoch"]
    return epoch
