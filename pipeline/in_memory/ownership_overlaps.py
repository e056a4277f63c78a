"""The table `ownership_overlaps` in plain Python: times in which a partition had two owners.

An interval of ownership is the time in which a member believes that it owns a partition. The first
of two owners is the one whose interval began earlier. If both began at the same time, it is the one
whose name sorts first.
`pipeline.tables.ownership_overlaps` computes the same with Spark.
"""

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

_SIDE_COLUMNS = {
    "consumer": "consumer",
    "member": "member",
    "generation": "generation",
    "coordinator": "coordinator",
    "epoch": "leader_epoch",
}
"""The columns about one owner. The table has each of them twice: with the prefix `first_` for the
first owner, and with `second_` for the second one. Each is mapped to the column of `ownership` that
it copies.
"""


@once_per_trace
def ownership_overlaps_of(trace: Trace) -> list[TableRow]:
    """Return each pair of intervals in which two members owned one partition at the same time."""
    faults = faults_of(trace)
    healings = sorted(fault["healed_us"] for fault in faults if fault["healed_us"] is not None)
    owners = sorted(ownership_of(trace), key=lambda row: (row["from_us"], row["consumer"]))
    # The intervals of each partition, the latest one first. The loop below goes through the
    # intervals from the earliest to the latest, and pops each from the end of its list. So the list
    # holds the intervals after `first`.
    later_intervals: dict[tuple[str, str], list[TableRow]] = {}
    for row in reversed(owners):
        later_intervals.setdefault((row["group"], row["partition"]), []).append(row)

    table = []
    for first in owners:
        later = later_intervals[first["group"], first["partition"]]
        later.pop()  # `first` itself
        for second in reversed(later):
            if first["to_us"] is not None and second["from_us"] >= first["to_us"]:
                break  # later intervals begin even later, so they do not overlap with `first`
            if first["consumer"] == second["consumer"]:
                continue  # two intervals of one member do not make two owners

            # The overlap ends when the first of the two intervals ends, or with the run.
            ends = [owner["to_us"] for owner in (first, second) if owner["to_us"] is not None]
            from_us, until_us = second["from_us"], min(ends, default=trace.end_us)
            if from_us >= until_us:
                continue  # the second interval has no length
            # `healed_us` is the last healing of a fault before the overlap ends; if there is none,
            # the first healing after its end.
            before = [healed_us for healed_us in healings if healed_us <= until_us]
            after = [healed_us for healed_us in healings if healed_us > until_us]
            by_first = _processed(trace, first, from_us, until_us)
            by_second = _processed(trace, second, from_us, until_us)
            table.append(
                {
                    "group": first["group"],
                    "partition": first["partition"],
                    "from_us": from_us,
                    "to_us": min(ends, default=None),
                    "length_us": until_us - from_us,
                    "records_both": len(by_first & by_second),
                    "fault": last_fault_before(faults, from_us),
                    "healed_us": before[-1] if before else min(after, default=None),
                }
                | {f"first_{name}": first[column] for name, column in _SIDE_COLUMNS.items()}
                | {f"second_{name}": second[column] for name, column in _SIDE_COLUMNS.items()}
            )
    return table


def _processed(trace: Trace, owned: TableRow, from_us: int, until_us: int) -> set[int]:
    """Return the offsets that an owner processed between two moments."""
    return {
        offset
        for row in trace.of(TraceKind.RECORDS_CONSUMED)
        if (row.group, row.partition) == (owned["group"], owned["partition"])
        and row.node == owned["consumer"]
        and from_us <= row.time_us <= until_us
        for offset in range(row.offset or 0, detail_of(row)["last"] + 1)
    }
