"""The table `ownership` in plain Python: each interval in which a member owned a partition.

An interval begins when a member gets its assignment, and ends when the member gives the partition
up, or dies. The intervals come from the members' own rows. So a member owns a partition here as
long as it believes that it does, even if it is wrong. `pipeline.tables.ownership` computes the same
with Spark.

A tenure is the time in which a broker is the active coordinator of an offsets partition (a
partition of `__consumer_offsets`). The leader epoch is the number of the broker's leadership there.
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
    epochs = _AssignmentEpochs(trace)
    table = []
    for (consumer, incarnation), rows in trace.lives(*_KINDS):
        for owned in _intervals(rows):
            if owned["from_us"] > trace.end_us:
                continue
            _end_at_death(trace, owned, consumer, incarnation)
            until_us = trace.end_us if owned["to_us"] is None else owned["to_us"]

            whole = Span(from_us=owned["from_us"], to_us=until_us)
            owned["length_us"] = until_us - owned["from_us"]
            owned["paused_us"] = length_us(within(trace.pauses(consumer), whole))
            owned["consumer"], owned["incarnation"] = consumer, incarnation
            owned["leader_epoch"] = epochs.of(owned)
            table.append(owned)
    return table


def _intervals(rows: Sequence[TraceRow]) -> list[TableRow]:
    """Return the intervals of one incarnation of a consumer.

    In this function only the consumer's own rows end an interval. An interval without such a row
    stays open, with `to_us` None, until `_end_at_death` compares it with deaths and with the run's
    end. An interval also has:

    - `position`: the cause of the interval's first POSITION_RESET; None if it has no such row.
    - `start_offset`: the offset that this POSITION_RESET set.
    """
    intervals: list[TableRow] = []
    open_intervals: dict[tuple[str, str], TableRow] = {}  # by group and partition
    synced_with: dict[str, str | None] = {}  # the broker of each group's last SyncGroup
    for row in rows:
        group = str(row.group)
        if row.kind == TraceKind.RESPONSE_RECEIVED:
            if row.api == "SyncGroup" and row.error == "NONE":
                synced_with[group] = row.peer
        elif row.kind == TraceKind.PARTITIONS_ASSIGNED:
            for partition in detail_of(row)["partitions"]:
                # If the member had this partition already, its old interval ends, because the new
                # assignment has another generation.
                _give_up(open_intervals, (group, partition), row.time_us, "reassigned")
                open_intervals[group, partition] = {
                    "group": group,
                    "partition": partition,
                    "member": row.member,
                    "generation": row.generation,
                    # The coordinator that gave the assignment. If the row does not name it, the
                    # broker that answered the group's last SyncGroup counts.
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
            # A batch that was in work when the member gave its partition up belongs to no interval,
            # because the partition has no open interval any more.
            owned = open_intervals[group, str(row.partition)]
            if row.kind == TraceKind.RECORDS_CONSUMED:
                owned["records"] += detail_of(row)["count"]
            elif owned["position"] is None:
                # The row is the first POSITION_RESET of the interval: no other kind is left.
                owned["position"], owned["start_offset"] = row.cause, row.offset
    return intervals


def _give_up(
    open_intervals: dict[tuple[str, str], TableRow],
    group_and_partition: tuple[str, str],
    at_us: int,
    ended_by: str,
) -> None:
    """End the open interval of a group's partition; do nothing if none is open."""
    owned = open_intervals.pop(group_and_partition, None)
    if owned is not None:
        owned["to_us"], owned["ended_by"] = at_us, ended_by


def _end_at_death(trace: Trace, owned: TableRow, consumer: str, incarnation: int) -> None:
    """End an interval at its owner's death, if that came before the interval's end.

    An interval that reaches the run's end gets `to_us` None, even if the owner gave it up later.
    """
    death = trace.death(consumer, incarnation, owned["from_us"])
    if death is not None and (owned["to_us"] is None or death.at_us < owned["to_us"]):
        owned["to_us"], owned["ended_by"] = death.at_us, death.by
    if owned["to_us"] is not None and owned["to_us"] >= trace.end_us:
        owned["to_us"], owned["ended_by"] = None, "run end"


class _AssignmentEpochs:
    """Finds the leader epoch in which the coordinator made an assignment.

    It is the epoch of the coordinator's last tenure that had begun when the member got the
    assignment.
    """

    def __init__(self, trace: Trace) -> None:
        self._groups = trace.groups()  # the offsets partition of each group
        self._tenures = coordinator_tenures_of(trace)

    def of(self, owned: TableRow) -> int | None:
        """Return the leader epoch in which an interval was assigned; None if it is not known."""
        tenures = [
            tenure
            for tenure in self._tenures
            if tenure["partition"] == self._groups.get(owned["group"])
            and tenure["broker"] == owned["coordinator"]
            and tenure["start_us"] <= owned["from_us"]
        ]
        latest = max(
            tenures, key=lambda tenure: (tenure["start_us"], tenure["leader_epoch"]), default=None
        )
        epoch: int | None = latest["leader_epoch"] if latest else None
        return epoch
