"""The tables `felt_partitions` and `felt_groups` in plain Python: what users notice of faults.

The users of a group notice times in which nobody processes a partition, a growing lag, records that
are processed twice, and members that are removed. The lag of a partition is the number of its
acknowledged records that the group has not processed yet. An incarnation is one life of a node's
process.

The steady state of a run is the state in which all groups have all their members and partitions.
The figures cover the time from the steady state to the run's end. In a run that never became
steady, this time begins with the run. `pipeline.tables.felt` computes the same with Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.ownership import ownership_of
from pipeline.in_memory.processing import begun_us, processing_of
from pipeline.in_memory.rebalances import rebalances_of
from pipeline.in_memory.runs import runs_of
from pipeline.in_memory.trace import MEMBER_KINDS, TableRow, Trace, detail_of, once_per_trace
from protocol.causes import RemovalCause
from protocol.trace import TraceKind, TraceRow

_WAIT_US = 1_000_000
"""Shortest wait of records that a user notices. In normal work, records wait for the next poll or
for the batch before them, which takes less time.
"""
_SENT_AWAY = (
    RemovalCause.SESSION_EXPIRY,
    RemovalCause.DID_NOT_REJOIN,
    RemovalCause.SYNC_DEADLINE,
)
"""Causes of a removal in which the coordinator takes a silent member to be gone. The members in the
column `sent_away` were removed for one of these causes, although their process ran.
"""
_GroupAndPartition = tuple[str, str]
"""Group and data partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """The lag of a partition from the moment `at_us` on.

    At this moment, a batch was produced, or a member ended its work on a batch. `begun_us` is when
    this work began; None if a batch was produced.
    """

    at_us: int
    lag: int
    begun_us: int | None


@once_per_trace
def felt_partitions_of(trace: Trace) -> list[TableRow]:
    """Return the times without service, the lag and the repeats of each partition per group."""
    start_us, owners, levels = _start_us(trace), _owners(trace), _levels(trace)
    repeated: dict[_GroupAndPartition, int] = {}  # number of records that were processed again
    for row in processing_of(trace):
        key = (row["group"], row["partition"])
        repeated[key] = repeated.get(key, 0) + row["repeated"]
    injections_us = [fault["injected_us"] for fault in faults_of(trace)]
    # Faults before the steady state do not count. In a run without a fault, all of the measured
    # time counts as the time after the first fault.
    first_fault_us = min((at_us for at_us in injections_us if at_us >= start_us), default=start_us)
    return [
        {
            "group": key[0],
            "partition": key[1],
            "from_us": start_us,
            "to_us": trace.end_us,
            "unowned_us": _unowned_us(trace, owners.get(key, [])),
            "waited_us": _waited_us(trace, levels.get(key, [])),
            "repeated": repeated.get(key, 0),
            **_peak(levels.get(key, []), start_us, first_fault_us, trace.end_us),
        }
        # `repeated` has each partition that was processed, `owners` each that had an owner.
        for key in sorted({*owners, *repeated})
    ]


def felt_groups_of(trace: Trace) -> list[TableRow]:
    """Return the rebalances, moved partitions and removed members of each group."""
    start_us = _start_us(trace)
    rebalances = [
        row["group"]
        for row in rebalances_of(trace)
        if start_us <= row["started_us"] <= trace.end_us
    ]
    sent_away = _sent_away(trace)
    table = []
    for group in sorted(trace.groups()):
        # For each partition of the group, the list of its successive owners.
        histories = [
            _successive_owners(trace, rows)
            for key, rows in _owners(trace).items()
            if key[0] == group
        ]
        table.append(
            {
                "group": group,
                # The partitions that had an owner or were processed. `moved` counts those that went
                # from one owner to another, and `came_back` those that a former owner got again.
                "partitions": len(
                    [row for row in felt_partitions_of(trace) if row["group"] == group]
                ),
                "rebalances": rebalances.count(group),
                "moved": sum(len(successive_owners) > 1 for successive_owners in histories),
                "came_back": sum(
                    len(successive_owners) > len(set(successive_owners))
                    for successive_owners in histories
                ),
                "sent_away": sent_away.count(group),
            }
        )
    return table


def _start_us(trace: Trace) -> int:
    """Return the time of the steady state, 0 if the run never became steady."""
    steady_us: int | None = runs_of(trace)[0]["steady_us"]
    return min(trace.end_us, 0 if steady_us is None else steady_us)


@once_per_trace
def _owners(trace: Trace) -> dict[_GroupAndPartition, list[TableRow]]:
    """Return the rows of the table `ownership` by group and partition, in time order."""
    by_key: dict[_GroupAndPartition, list[TableRow]] = {}
    for row in sorted(ownership_of(trace), key=lambda row: (row["from_us"], row["consumer"])):
        by_key.setdefault((row["group"], row["partition"]), []).append(row)
    return by_key


def _unowned_us(trace: Trace, owners: Sequence[TableRow]) -> int | None:
    """Return the time without an owner, after the partition got its first owner.

    Returns None if the partition never had an owner.
    """
    if not owners:
        return None
    owned_until_us: int = max(_start_us(trace), owners[0]["from_us"])
    unowned_us = 0
    for row in owners:
        from_us: int = row["from_us"]
        unowned_us += max(0, from_us - owned_until_us)
        ends_us: int = trace.end_us if row["to_us"] is None else row["to_us"]
        # Two members can own the partition at the same time, and the later owner can end first.
        owned_until_us = max(owned_until_us, ends_us)
    return unowned_us + max(0, trace.end_us - owned_until_us)


def _levels(trace: Trace) -> dict[_GroupAndPartition, list[_Level]]:
    """Return the lag after each batch that was produced or processed.

    The lag counts acknowledged records above the last record that the group processed. Each level
    lasts until the next one.
    """
    consumed: dict[_GroupAndPartition, list[TraceRow]] = {}
    for row in trace.of(TraceKind.RECORDS_CONSUMED):
        consumed.setdefault((str(row.group), str(row.partition)), []).append(row)
    # A partition that had an owner has a lag even if no batch of it was processed.
    for key in _owners(trace):
        consumed.setdefault(key, [])

    # A step is the production or the processing of a batch, as a tuple of four:
    # - its time;
    # - True if the batch was processed, False if it was produced;
    # - the offset behind the batch's last record;
    # - the beginning of the work on the batch; None if it was produced.
    # Of two steps at one moment, sorting puts the production (False) first.
    produced: dict[str, list[tuple[int, bool, int, int | None]]] = {}
    for row in trace.of(TraceKind.RECORDS_PRODUCED):
        next_offset = (row.offset or 0) + int(detail_of(row)["count"])
        step = (row.time_us, False, next_offset, None)
        produced.setdefault(str(row.partition), []).append(step)

    levels_by_key = {}
    for key, rows in consumed.items():
        processed = [
            (row.time_us, True, int(detail_of(row)["last"]) + 1, begun_us(row)) for row in rows
        ]
        produced_until, processed_until = 0, 0
        levels = []
        for at_us, is_processed, next_offset, work_began_us in sorted(
            [*produced.get(key[1], []), *processed]
        ):
            if is_processed:
                processed_until = max(processed_until, next_offset)
            else:
                produced_until = max(produced_until, next_offset)
            # A member can process a record before the record's producer gets its acknowledgement.
            # Then the difference is negative, and the lag 0.
            lag = max(0, produced_until - processed_until)
            levels.append(_Level(at_us=at_us, lag=lag, begun_us=work_began_us))
        levels_by_key[key] = levels
    return levels_by_key


def _waited_us(trace: Trace, levels: Sequence[_Level]) -> int:
    """Return the time in which records waited and no member worked on any of them.

    Waits shorter than _WAIT_US do not count.
    """
    start_us, waited_us = _start_us(trace), 0
    for from_us, to_us in _waits(levels, trace.end_us):
        length_us = min(to_us, trace.end_us) - max(from_us, start_us)
        waited_us += length_us if length_us >= _WAIT_US else 0
    return waited_us


def _waits(levels: Sequence[_Level], end_us: int) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each time in which records wait for work on the next batch.

    The end can be earlier than the beginning: if two members process a partition at the same time,
    the one that finishes later can have begun before the wait began. Such a time has no length.
    """
    # For each level, the earliest beginning of work on a later batch; the last level comes first.
    next_begun: list[int | None] = []
    earliest_us: int | None = None
    for level in reversed(levels):
        next_begun.append(earliest_us)
        if level.begun_us is not None:
            earliest_us = (
                level.begun_us if earliest_us is None else min(earliest_us, level.begun_us)
            )
    # Between the ends of work on two batches, at most one wait begins: at the first lag above 0.
    is_waiting = False
    for level, next_us in zip(levels, reversed(next_begun), strict=True):
        if level.begun_us is not None:  # the work on a batch ended at this level
            is_waiting = False
        if level.lag > 0 and not is_waiting:
            is_waiting = True
            yield level.at_us, end_us if next_us is None else next_us


def _peak(levels: Sequence[_Level], start_us: int, first_fault_us: int, end_us: int) -> TableRow:
    """Return the greatest lag after the first fault, and the time until the lag was usual again.

    The usual lag is the greatest lag before the first fault.
    """
    usual = max(
        (level.lag for level in levels if start_us <= level.at_us < first_fault_us), default=0
    )
    after = [level for level in levels if first_fault_us <= level.at_us <= end_us]
    peak = max((level.lag for level in after), default=0)
    peak_us: int | None = None
    # `over_us` is 0 if the lag was never above the usual lag, and None if it stayed above.
    over_us: int | None = 0
    if peak > usual:
        peak_us = min(level.at_us for level in after if level.lag == peak)
        usual_again = [
            level.at_us for level in after if level.at_us > peak_us and level.lag <= usual
        ]
        over_us = min(usual_again) - peak_us if usual_again else None
    return {
        "lag_usual": usual,
        "lag_peak": peak,
        "lag_peak_us": peak_us,
        "lag_over_us": over_us,
    }


def _successive_owners(trace: Trace, owners: Sequence[TableRow]) -> list[str]:
    """Return the successive owners of a partition after the start; no two neighbours are equal.

    Successive intervals of one member count as one owner.
    """
    # `groupby` without a key puts equal neighbours into one group.
    start_us = _start_us(trace)
    in_time = [row for row in owners if row["to_us"] is None or row["to_us"] >= start_us]
    return [consumer for consumer, _ in groupby(row["consumer"] for row in in_time)]


def _sent_away(trace: Trace) -> list[str]:
    """Return the group of each removal of a member whose process ran and could be reached."""
    # For each member id of a group, its life: the node and the last incarnation of the node that
    # wrote rows with this id.
    lives: dict[tuple[str | None, str | None], tuple[str, int]] = {}
    # For each life and member id, the time of the life's first row with this id.
    first_us: dict[tuple[str, int, str | None, str | None], int] = {}
    for row in trace.of(*MEMBER_KINDS):
        member, life = (row.group, row.member), (row.node, row.incarnation)
        lives[member] = max(life, lives.get(member, life))
        first_us.setdefault((*life, *member), row.time_us)

    faults, start_us = faults_of(trace), _start_us(trace)
    groups = []
    for row in trace.of(TraceKind.MEMBER_REMOVED):
        if row.cause not in _SENT_AWAY or not start_us <= row.time_us <= trace.end_us:
            continue
        member = (row.group, row.member)
        last_life = lives.get(member)
        # If the member wrote no row, nobody knows whether its process ran.
        if last_life is None:
            continue
        # An end before the life's first row is the end of an earlier life of the same node.
        death = trace.death(*last_life, since_us=first_us[*last_life, *member])
        if death is not None and death.at_us <= row.time_us:
            continue
        node, _ = last_life
        impaired = [*trace.pauses(node), *trace.cuts(node, faults)]
        if not any(span.from_us <= row.time_us < span.to_us for span in impaired):
            groups.append(str(row.group))
    return groups
