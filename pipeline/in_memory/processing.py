"""The table `processing` in plain Python: the records that each member processed.

A record is repeated if a member of its group has processed it before. It is shared if two members
processed it while both owned its partition. `pipeline.tables.processing` computes the same with
Spark.
"""

from itertools import permutations

from pipeline.in_memory.ownership import ownership_of
from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def processing_of(trace: Trace) -> list[TableRow]:
    """Return what each member processed of each partition."""
    table: dict[tuple[str, str, str], TableRow] = {}  # by group, partition and consumer
    processed: set[tuple[str, str, int]] = set()  # group, partition and offset of each record
    for row in trace.of(TraceKind.RECORDS_CONSUMED):
        group, partition = str(row.group), str(row.partition)
        offsets = _offsets(row)
        counts = table.setdefault(
            (group, partition, row.node),
            {
                "group": group,
                "partition": partition,
                "consumer": row.node,
                "records": 0,
                "first_offset": offsets[0],
                "last_offset": offsets[-1],
                "first_us": row.time_us,
                "repeated": 0,
            },
        )

        counts["records"] += len(offsets)
        counts["first_offset"] = min(counts["first_offset"], offsets[0])
        counts["last_offset"] = max(counts["last_offset"], offsets[-1])
        counts["last_us"] = row.time_us
        counts["repeated"] += sum((group, partition, offset) in processed for offset in offsets)
        processed.update((group, partition, offset) for offset in offsets)

    shared = _shared_offsets(trace)
    return [row | {"shared": len(shared.get(key, ()))} for key, row in table.items()]


def begun_us(row: TraceRow) -> int:
    """Return when the work on a batch began.

    A member writes the row about the batch when the work ends, so the row's time is the end.
    """
    # A row has no `work_us` if the experiment's records take no time to process.
    return row.time_us - int(detail_of(row).get("work_us", 0))


def _shared_offsets(trace: Trace) -> dict[tuple[str, str, str], set[int]]:
    """Return the offsets that two members processed while both owned the partition.

    The keys are group, partition and the node of one of the owners. The offsets are stored under
    both owners.
    """
    shared: dict[tuple[str, str, str], set[int]] = {}
    owners: dict[tuple[str, str], list[TableRow]] = {}
    for row in ownership_of(trace):
        owners.setdefault((row["group"], row["partition"]), []).append(row)
    for group_and_partition, intervals in owners.items():
        # `permutations` returns each pair of intervals twice, once in each order. So each of the
        # two owners is once the owner of `interval`.
        for interval, other in permutations(intervals, 2):
            if interval["consumer"] == other["consumer"]:
                continue  # two intervals of one member do not make two owners
            from_us = max(interval["from_us"], other["from_us"])
            ends = (interval["to_us"], other["to_us"])
            until_us = min(trace.end_us if end is None else end for end in ends)
            if from_us < until_us:
                offsets = _processed(trace, interval, from_us, until_us)
                offsets &= _processed(trace, other, from_us, until_us)
                key = (*group_and_partition, interval["consumer"])
                shared.setdefault(key, set()).update(offsets)
    return shared


def _processed(trace: Trace, owner: TableRow, from_us: int, until_us: int) -> set[int]:
    """Return the offsets that one owner processed between two moments."""
    return {
        offset
        for row in trace.of(TraceKind.RECORDS_CONSUMED)
        if (row.group, row.partition, row.node)
        == (owner["group"], owner["partition"], owner["consumer"])
        and from_us <= row.time_us <= until_us
        for offset in _offsets(row)
    }


def _offsets(row: TraceRow) -> range:
    """Return the offsets of the batch that a row is about."""
    if row.offset is None:
        return range(0)
    return range(row.offset, detail_of(row)["last"] + 1)
