"""The tables `felt_partitions` and `felt_groups` in plain Python: what users notice of faults.

The users of a group notice that no member processes a partition for a while, that its lag grows,
that records are processed twice, or that members are removed. The lag is the number of acknowledged
records that the group has not processed yet.

The figures cover the time from the moment at which all groups have all their members and partitions
(the steady state) to the run's end. If a run never reached the steady state, they cover the whole
run. `pipeline.tables.felt` computes the same with Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.ownership import ownership_of
from pipeline.in_memory.processing import begun_us, processing_of
from pipeline.in_memory.rebalances import rebalances_of
from pipeline.in_memory.runs import runs_of
from pipeline.in_memory.trace import MEMBER_KINDS, TableRow, Trace, detail_of, once_per_trace
from protocol.causes import RemovalCause
from protocol.trace import TraceKind, TraceRow

_WAIT_US = 1_000_000
"""Shortest wait that counts: 1 s. In normal work, too, records wait a little for the next poll, or
until the batch before them is done.
"""
_SENT_AWAY_CAUSES = (
    RemovalCause.SESSION_EXPIRY,
    RemovalCause.DID_NOT_REJOIN,
    RemovalCause.SYNC_DEADLINE,
)
"""Causes of a removal that mean: the coordinator heard nothing from the member in time. The column
`sent_away` counts such removals of members that were not gone at all.
"""
_GroupAndPartition = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """The lag of a partition from one moment on.

    - `at_us`: the moment. Either a batch was produced, and the lag became greater. Or a member
      ended its work on a batch, and the lag became smaller.
    - `begun_us`: when the member began its work on the batch; None if a batch was produced.
    """

    at_us: int
    lag: int
    begun_us: int | None


@once_per_trace
def felt_partitions_of(trace: Trace) -> list[TableRow]:
    """Return the times without service, the lag and the repeated records of each partition."""
    start_us = _start_us(trace)
    intervals = _intervals(trace)
    levels = _levels(trace)
    repeated: dict[_GroupAndPartition, int] = {}  # number of records that were processed again
    for row in processing_of(trace):
        key = (row["group"], row["partition"])
        repeated[key] = repeated.get(key, 0) + row["repeated"]
    # Faults before the steady state do not count. In a run without a fault, all of the measured
    # time counts as the time after the first fault.
    injections_us = [fault["injected_us"] for fault in faults_of(trace)]
    first_fault_us = min((at_us for at_us in injections_us if at_us >= start_us), default=start_us)
    owned_or_processed = sorted({*intervals, *repeated})
    return [
        {
            "group": group,
            "partition": partition,
            "from_us": start_us,
            "to_us": trace.end_us,
            "unowned_us": _unowned_us(trace, intervals.get((group, partition), [])),
            "waited_us": _waited_us(trace, levels.get((group, partition), [])),
            "repeated": repeated.get((group, partition), 0),
            **_peak(levels.get((group, partition), []), start_us, first_fault_us, trace.end_us),
        }
        for group, partition in owned_or_processed
    ]


def felt_groups_of(trace: Trace) -> list[TableRow]:
    """Return the rebalances, moved partitions and removed members of each group."""
    start_us = _start_us(trace)
    # Each of these three lists has the name of a group for each thing that counts: for each
    # rebalance, each partition, and each removal. So `count` returns the number for a group.
    groups_of_rebalances = [
        row["group"]
        for row in rebalances_of(trace)
        if start_us <= row["started_us"] <= trace.end_us
    ]
    groups_of_partitions = [row["group"] for row in felt_partitions_of(trace)]
    groups_of_sent_away = _groups_of_sent_away(trace)
    table = []
    for group in sorted(trace.groups()):
        owners_of_partitions = [
            _successive_owners(trace, intervals)
            for (group_of_intervals, _partition), intervals in _intervals(trace).items()
            if group_of_intervals == group
        ]
        table.append(
            {
                "group": group,
                "partitions": groups_of_partitions.count(group),
                "rebalances": groups_of_rebalances.count(group),
                "moved": sum(len(owners) > 1 for owners in owners_of_partitions),
                # If a name occurs twice among the successive owners, this owner got the partition
                # again.
                "came_back": sum(len(owners) > len(set(owners)) for owners in owners_of_partitions),
                "sent_away": groups_of_sent_away.count(group),
            }
        )
    return table


def _start_us(trace: Trace) -> int:
    """Return when the run became steady; 0 if it never did."""
    steady_us: int | None = runs_of(trace)[0]["steady_us"]
    return min(trace.end_us, 0 if steady_us is None else steady_us)


@once_per_trace
def _intervals(trace: Trace) -> dict[_GroupAndPartition, list[TableRow]]:
    """Return the intervals in which each partition had an owner, in time order.

    An interval is a row of the table `ownership`.
    """
    by_partition: dict[_GroupAndPartition, list[TableRow]] = {}
    for row in sorted(ownership_of(trace), key=lambda row: (row["from_us"], row["consumer"])):
        by_partition.setdefault((row["group"], row["partition"]), []).append(row)
    return by_partition


def _unowned_us(trace: Trace, intervals: Sequence[TableRow]) -> int | None:
    """Return for how long a partition had no owner, after it got its first owner.

    Returns None if the partition never had an owner.
    """
    if not intervals:
        return None
    owned_until_us: int = max(_start_us(trace), intervals[0]["from_us"])
    unowned_us = 0
    for interval in intervals:
        from_us: int = interval["from_us"]
        to_us: int = trace.end_us if interval["to_us"] is None else interval["to_us"]
        unowned_us += max(0, from_us - owned_until_us)
        # If two members own the partition at the same time, the interval that began later can end
        # first.
        owned_until_us = max(owned_until_us, to_us)
    return unowned_us + max(0, trace.end_us - owned_until_us)


def _levels(trace: Trace) -> dict[_GroupAndPartition, list[_Level]]:
    """Return how the lag of each partition developed: a level after each batch.

    The lag is the number of acknowledged records above the last record that the group processed.
    Each level lasts until the next level.
    """
    consumed: dict[_GroupAndPartition, list[TraceRow]] = {}
    for row in trace.of(TraceKind.RECORDS_CONSUMED):
        consumed.setdefault((str(row.group), str(row.partition)), []).append(row)
    # A partition that had an owner has a lag even if none of its batches was processed.
    for key in _intervals(trace):
        consumed.setdefault(key, [])

    produced: dict[str, list[_Batch]] = {}
    for row in trace.of(TraceKind.RECORDS_PRODUCED):
        # If the trace does not tell the batch's first offset, the smallest offset is assumed.
        first_offset = 0 if row.offset is None else row.offset
        batch = _Batch(
            at_us=row.time_us,
            is_processed=False,
            next_offset=first_offset + int(detail_of(row)["count"]),
            begun_us=None,
        )
        produced.setdefault(str(row.partition), []).append(batch)

    levels_by_partition = {}
    for (group, partition), rows in consumed.items():
        processed = [
            _Batch(
                at_us=row.time_us,
                is_processed=True,
                next_offset=int(detail_of(row)["last"]) + 1,
                begun_us=begun_us(row),
            )
            for row in rows
        ]
        produced_until, processed_until = 0, 0
        levels = []
        for batch in sorted([*produced.get(partition, []), *processed]):
            if batch.is_processed:
                processed_until = max(processed_until, batch.next_offset)
            else:
                produced_until = max(produced_until, batch.next_offset)
            # A member can process a record before the record's producer gets its acknowledgement.
            # Then the difference is negative, and the lag 0.
            lag = max(0, produced_until - processed_until)
            levels.append(_Level(at_us=batch.at_us, lag=lag, begun_us=batch.begun_us))
        levels_by_partition[group, partition] = levels
    return levels_by_partition


class _Batch(NamedTuple):
    """A batch that was produced or processed.

    Batches are sorted by these fields. So if two batches have the same moment, the produced batch
    comes before the processed batch: False sorts before True.
    """

    at_us: int
    is_processed: bool
    next_offset: int
    """the offset behind the batch's last record"""
    begun_us: int | None
    """when a member began to work on the batch; None if the batch was produced"""


def _waited_us(trace: Trace, levels: Sequence[_Level]) -> int:
    """Return how long records waited while no member worked on any of them."""
    start_us = _start_us(trace)
    lengths_us = [
        min(to_us, trace.end_us) - max(from_us, start_us)
        for from_us, to_us in _waits(levels, trace.end_us)
    ]
    return sum(length_us for length_us in lengths_us if length_us >= _WAIT_US)


def _waits(levels: Sequence[_Level], end_us: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each time in which records waited to be processed.

    A wait begins when the lag is above 0 and no member works, and it ends when a member begins to
    work on the next batch. `end_us` is the run's end.

    If two members process the partition at the same time, the work on the next batch may have begun
    before the wait began. Then the end is before the beginning, and the wait does not count.
    """
    # For each level, the earliest moment at which a member began to work on a later batch. These
    # moments are computed from the last level to the first.
    next_begun_backwards: list[int | None] = []
    earliest_us: int | None = None
    for level in reversed(levels):
        next_begun_backwards.append(earliest_us)
        if level.begun_us is not None:
            earliest_us = (
                level.begun_us if earliest_us is None else min(earliest_us, level.begun_us)
            )
    # While a wait goes on, more batches may be produced. These batches begin no further wait.
    is_waiting = False
    for level, next_begun_us in zip(levels, reversed(next_begun_backwards), strict=True):
        work_ended = level.begun_us is not None
        if work_ended:
            is_waiting = False
        if level.lag > 0 and not is_waiting:
            is_waiting = True
            yield level.at_us, end_us if next_begun_us is None else next_begun_us


def _peak(levels: Sequence[_Level], start_us: int, first_fault_us: int, end_us: int) -> TableRow:
    """Return the greatest lag after the first fault, and the time until the lag was usual again.

    A lag is usual if it is at most the greatest lag before the first fault. `lag_over_us` is 0 if
    the lag was always usual, and None if it did not become usual again.
    """
    usual = max(
        (level.lag for level in levels if start_us <= level.at_us < first_fault_us), default=0
    )
    after_fault = [level for level in levels if first_fault_us <= level.at_us <= end_us]
    peak = max((level.lag for level in after_fault), default=0)
    peak_us: int | None = None
    over_us: int | None = 0
    if peak > usual:
        peak_us = min(level.at_us for level in after_fault if level.lag == peak)
        usual_again_us = [
            level.at_us for level in after_fault if level.at_us > peak_us and level.lag <= usual
        ]
        over_us = min(usual_again_us) - peak_us if usual_again_us else None
    return {
        "lag_usual": usual,
        "lag_peak": peak,
        "lag_peak_us": peak_us,
        "lag_over_us": over_us,
    }


def _successive_owners(trace: Trace, intervals: Sequence[TableRow]) -> list[str]:
    """Return the owners of a partition in the measured time, one after another.

    A member that gets the partition again at once, in a new generation, counts as one owner: the
    intervals of A, A, B, A give `["A", "B", "A"]`.
    """
    start_us = _start_us(trace)
    in_time = [row for row in intervals if row["to_us"] is None or row["to_us"] >= start_us]
    # `groupby` joins neighbours that are equal.
    return [consumer for consumer, _ in groupby(row["consumer"] for row in in_time)]


def _groups_of_sent_away(trace: Trace) -> list[str]:
    """Return the group of each removal of a member whose process ran and could be reached.

    A group occurs in the list as often as such members of the group were removed.
    """
    # For each member id, the process (node and incarnation) that wrote rows with this id. If
    # several incarnations of the node wrote such rows, the last incarnation counts.
    lives: dict[tuple[str | None, str | None], tuple[str, int]] = {}
    # When each process first wrote a row with each member id.
    first_us: dict[tuple[str, int, str | None, str | None], int] = {}
    for row in trace.of(*MEMBER_KINDS):
        member = (row.group, row.member)
        life = (row.node, row.incarnation)
        lives[member] = max(life, lives.get(member, life))
        first_us.setdefault((*life, *member), row.time_us)

    faults = faults_of(trace)
    start_us = _start_us(trace)
    groups = []
    for row in trace.of(TraceKind.MEMBER_REMOVED):
        if row.cause not in _SENT_AWAY_CAUSES or not start_us <= row.time_us <= trace.end_us:
            continue
        member = (row.group, row.member)
        if member not in lives:  # it wrote no row: whether its process ran is unknown
            continue
        node, incarnation = lives[member]
        alive_us = first_us[node, incarnation, *member]
        death = trace.death(node, incarnation, since_us=alive_us)
        if death is not None and death.at_us <= row.time_us:
            continue
        out_of_reach = [*trace.pauses(node), *trace.cuts(node, faults)]
        if not any(span.from_us <= row.time_us < span.to_us for span in out_of_reach):
            groups.append(str(row.group))
    return groups
