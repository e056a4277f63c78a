"""The table `ownership_overlaps` in plain Python."""

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

_WHO = {
    "consumer": "consumer",
    "member": "member",
    "generation": "generation",
    "coordinator": "coordinator",
    "epoch": "leader_epoch",
}


@once_per_trace
def ownership_overlaps_of(trace: Trace) -> list[TableRow]:
    """Return each pair of intervals in which two members owned one partition at once."""
    faults = faults_of(trace)
    healings = sorted(f["healed_us"] for f in faults if f["healed_us"] is not None)
    owners = sorted(ownership_of(trace), key=lambda each: (each["from_us"], each["consumer"]))
    later: dict[tuple[str, str], list[TableRow]] = {}
    for row in reversed(owners):
        later.setdefault((row["group"], row["partition"]), []).append(row)
    found = []
    for first in owners:
        same_partition = later[first["group"], first["partition"]]
        same_partition.pop()  # `first` itself
        for second in reversed(same_partition):
            if first["to_us"] is not None and second["from_us"] >= first["to_us"]:
                break  # no later one overlaps either
            if first["consumer"] == second["consumer"]:
                continue
            ends = [each["to_us"] for each in (first, second) if each["to_us"] is not None]
            from_us, until_us = second["from_us"], min(ends, default=trace.end_us)
            if from_us >= until_us:
                continue
            before = [healed_us for healed_us in healings if healed_us <= until_us]
            after = [healed_us for healed_us in healings if healed_us > until_us]
            mine, theirs = (_processed(trace, each, from_us, until_us) for each in (first, second))
            found.append(
                {
                    "group": first["group"],
                    "partition": first["partition"],
                    "from_us": from_us,
                    "to_us": min(ends, default=None),
                    "length_us": until_us - from_us,
                    "records_both": len(mine & theirs),
                    "fault": last_fault_before(faults, from_us),
                    "healed_us": before[-1] if before else min(after, default=None),
                }
                | {f"first_{name}": first[column] for name, column in _WHO.items()}
                | {f"second_{name}": second[column] for name, column in _WHO.items()}
            )
    return found


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
