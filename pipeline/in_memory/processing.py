"""The table `processing` in plain Python: how many records of each partition each member processed.

The table also counts how many of these records were *repeated*: a member of the group had processed
the record before. And it counts how many were *shared*: two members processed the record while both
owned its partition. `pipeline.tables.processing` computes the same with Spark.
"""

from itertools import permutations

from pipeline.in_memory.ownership import ownership_of
from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def processing_of(trace: Trace) -> list[TableRow]:
    """Return a row for each member and each partition whose records the member processed."""
    table: dict[tuple[str, str, str], TableRow] = {}  # by group, partition and consumer
    processed_before: set[tuple[str, str, int]] = set()  # records: group, partition and offset
    for row in trace.of(TraceKind.RECORDS_CONSUMED):
        # `str` only satisfies the type checker: these rows have a group and a partition.
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
        records = [(group, partition, offset) for offset in offsets]
        counts["repeated"] += sum(record in processed_before for record in records)
        processed_before.update(records)

    shared = _shared_offsets(trace)
    return [row | {"shared": len(shared.get(key, ()))} for key, row in table.items()]


def begun_us(row: TraceRow) -> int:
    """Return when a member began to work on a batch; `row` is its row RECORDS_CONSUMED.

    The member writes this row when the work ends. `work_us` tells how long the work took. `work_us`
    is missing if the records of the experiment take no time to process. The modules `availability`
    and `felt` use this function; the table `processing` uses only the end of the work.
    """
    return row.time_us - int(detail_of(row).get("work_us", 0))


def _shared_offsets(trace: Trace) -> dict[tuple[str, str, str], set[int]]:
    """Return the offsets that two members processed while both owned the partition.

    The keys are group, partition and consumer. An offset is stored for both owners.
    """
    shared: dict[tuple[str, str, str], set[int]] = {}
    intervals_by_partition: dict[tuple[str, str], list[TableRow]] = {}
    for row in ownership_of(trace):
        intervals_by_partition.setdefault((row["group"], row["partition"]), []).append(row)
    for group_and_partition, intervals in intervals_by_partition.items():
        # `permutations` gives each pair of intervals in both orders. So the offsets are stored
        # once for the one owner, and once for the other.
        for interval, other in permutations(intervals, 2):
            if interval["consumer"] == other["consumer"]:
                continue  # these are two intervals of one owner
            from_us = max(interval["from_us"], other["from_us"])
            ends_us = (interval["to_us"], other["to_us"])
            until_us = min(trace.end_us if end_us is None else end_us for end_us in ends_us)
            if from_us < until_us:
                offsets = _processed(trace, interval, from_us, until_us)
                offsets &= _processed(trace, other, from_us, until_us)
                key = (*group_and_partition, interval["consumer"])
                shared.setdefault(key, set()).update(offsets)
    return shared


def _processed(trace: Trace, interval: TableRow, from_us: int, until_us: int) -> set[int]:
    """Return the offsets of the records that an owner processed from one moment to another.

    Both moments are included.
    """
    return {
        offset
        for row in trace.of(TraceKind.RECORDS_CONSUMED)
        if (row.group, row.partition, row.node)
        == (interval["group"], interval["partition"], interval["consumer"])
        and from_us <= row.time_us <= until_us
        for offset in _offsets(row)
    }


def _offsets(row: TraceRow) -> range:
    """Return the offsets of a processed batch; `row` is the member's row about the batch."""
    if row.offset is None:
        return range(0)
    return range(row.offset, detail_of(row)["last"] + 1)
