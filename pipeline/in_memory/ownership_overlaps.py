"""The table `ownership_overlaps` in plain Python: times in which a partition had two owners.

The table `ownership` has the intervals in which members believed that they owned a partition. Here
these intervals are compared: a row is a pair of two members' intervals that overlap. The first
owner is the member whose interval began earlier. If both began at the same time, it is the member
whose name sorts first. `pipeline.tables.ownership_overlaps` computes the same with Spark.
"""

from collections.abc import Sequence

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.ownership import ownership_of
from pipeline.in_memory.trace import (
    TableRow,
    Trace,
    detail_of,
    last_fault_before,
    once_per_trace,
)
from protocol.trace import TraceKind

_OWNER_COLUMNS = {
    "consumer": "consumer",
    "member": "member",
    "generation": "generation",
    "coordinator": "coordinator",
    "epoch": "leader_epoch",
}
"""The columns about an owner, without `first_` or `second_`, and the columns of `ownership` from
which their values are copied. For example, the column `consumer` is copied to `first_consumer` and
`second_consumer`.
"""


@once_per_trace
def ownership_overlaps_of(trace: Trace) -> list[TableRow]:
    """Return each time in which two members owned one partition."""
    faults = faults_of(trace)
    healings_us = sorted(fault["healed_us"] for fault in faults if fault["healed_us"] is not None)
    intervals = sorted(ownership_of(trace), key=lambda row: (row["from_us"], row["consumer"]))
    # Each interval is compared with the intervals that began after it. These are kept by partition,
    # the latest first. So `pop` removes the earliest interval.
    later_intervals: dict[tuple[str, str], list[TableRow]] = {}
    for interval in reversed(intervals):
        key = (interval["group"], interval["partition"])
        later_intervals.setdefault(key, []).append(interval)

    table = []
    for first in intervals:
        later = later_intervals[first["group"], first["partition"]]
        later.pop()  # this is `first` itself
        for second in reversed(later):
            if first["to_us"] is not None and second["from_us"] >= first["to_us"]:
                break  # later intervals begin even later, so they do not overlap with `first`
            if first["consumer"] == second["consumer"]:
                continue  # these are two intervals of one owner

            # The overlap ends when one of the two intervals ends, or with the run.
            ends_us = [row["to_us"] for row in (first, second) if row["to_us"] is not None]
            from_us = second["from_us"]
            until_us = min(ends_us, default=trace.end_us)
            if from_us >= until_us:
                continue  # the second interval has no length
            by_first = _processed(trace, first, from_us, until_us)
            by_second = _processed(trace, second, from_us, until_us)
            table.append(
                {
                    "group": first["group"],
                    "partition": first["partition"],
                    "from_us": from_us,
                    "to_us": min(ends_us, default=None),
                    "length_us": until_us - from_us,
                    "records_both": len(by_first & by_second),
                    "fault": last_fault_before(faults, from_us),
                    "healed_us": _nearest_healing(healings_us, until_us),
                }
                | {f"first_{name}": first[column] for name, column in _OWNER_COLUMNS.items()}
                | {f"second_{name}": second[column] for name, column in _OWNER_COLUMNS.items()}
            )
    return table


def _nearest_healing(healings_us: Sequence[int], end_us: int) -> int | None:
    """Return when a fault was last healed before an overlap ended.

    If no fault was healed before, return when a fault was first healed after the overlap ended.
    Returns None if no fault was healed at all. `healings_us` must be sorted.
    """
    before_us = [healed_us for healed_us in healings_us if healed_us <= end_us]
    if before_us:
        return before_us[-1]
    return next(iter(healings_us), None)  # all healings came after the end


def _processed(trace: Trace, interval: TableRow, from_us: int, until_us: int) -> set[int]:
    """Return the offsets of the records that an owner processed between two moments."""
    return {
        offset
        for row in trace.of(TraceKind.RECORDS_CONSUMED)
        if (row.group, row.partition) == (interval["group"], interval["partition"])
        and row.node == interval["consumer"]
        and from_us <= row.time_us <= until_us
        for offset in range(row.offset or 0, detail_of(row)["last"] + 1)
    }
