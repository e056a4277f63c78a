"""The table `ownership_overlaps` in plain Python: times in which a partition had two owners.

An interval of ownership is the time in which a member believes that it owns a partition. The first
of two owners is the one whose interval began earlier (at the same time: whose name sorts first).
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

# Of each of the two owners, the table has the columns `first_...` or `second_...`.
_SIDE_COLUMNS = {
    "consumer": "consumer",
    "member": "member",
    "generation": "generation",
    "coordinator": "coordinator",
    "epoch": "leader_epoch",
}
"""Column of the table without its prefix -> the column of `ownership` that it copies."""


@once_per_trace
def ownership_overlaps_of(trace: Trace) -> list[TableRow]:
    """Return each pair of intervals in which two members owned one partition at the same time."""
    faults = faults_of(trace)
    healings = sorted(fault["healed_us"] for fault in faults if fault["healed_us"] is not None)
    owners = sorted(ownership_of(trace), key=lambda row: (row["from_us"], row["consumer"]))
    # The intervals of each partition, the latest one first, so that the earliest can be popped from
    # the end of the list. When the loop below has popped `first`, the list holds the later ones.
    later_intervals: dict[tuple[str, str], list[TableRow]] = {}
    for row in reversed(owners):
        later_intervals.setdefault((row["group"], row["partition"]), []).append(row)

    table = []
    for first in owners:
        later = later_intervals[first["group"], first["partition"]]
        later.pop()  # `first` itself
        for second in reversed(later):
            if first["to_us"] is not None and second["from_us"] >= first["to_us"]:
                break  # intervals that begin even later do not overlap either
            if first["consumer"] == second["consumer"]:
                continue  # two intervals of one member do not make two owners

            # The overlap ends with the first of the two intervals that ends before the run does.
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
