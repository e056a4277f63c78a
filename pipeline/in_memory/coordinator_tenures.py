"""The table `coordinator_tenures` in plain Python: the coordinators of each offsets partition.

A tenure is the time in which a broker is the active coordinator of one offsets partition (a
partition of `__consumer_offsets`), and so of the groups in it. It begins when the broker has loaded
the partition (read its groups into memory). It ends when the broker has unloaded the partition
(dropped the groups) or loads it again, or when the broker's process ends. An incarnation is one
life of a process. A cut is a time in which a fault of the network separated the broker from others.
`pipeline.tables.coordinator_tenures` computes the same with Spark.
"""

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import (
    Span,
    TableRow,
    Trace,
    is_offsets_partition,
    length_us,
    once_per_trace,
    within,
)
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def coordinator_tenures_of(trace: Trace) -> list[TableRow]:
    """Return every tenure: its end, and its pauses, cuts and acknowledged commits."""
    # Nodes still write rows after the run's end, while they stop. No table counts those rows.
    tenures = [tenure for tenure in _find_tenures(trace) if tenure["start_us"] <= trace.end_us]
    faults = faults_of(trace)
    commits_by_tenure = _acknowledged_commits(trace)
    for tenure in tenures:
        whole = Span(from_us=tenure["start_us"], to_us=tenure["end_us"])
        other_spans = [
            Span(from_us=other["start_us"], to_us=other["end_us"])
            for other in tenures
            if other is not tenure and other["partition"] == tenure["partition"]
        ]
        # A moment in which two other tenures overlap this one counts twice (docs/TABLES.md).
        tenure["overlap_us"] = length_us(within(other_spans, whole))
        paused = within(trace.pauses(tenure["broker"]), whole)
        cut = within(trace.cuts(tenure["broker"], faults), whole)
        # The pauses and the cuts each have three columns: their total length, the start of the
        # first span, and the end of the last span.
        for name, spans in (("paused", paused), ("cut", cut)):
            tenure[f"{name}_us"] = length_us(spans)
            tenure[f"{name}_from_us"] = spans[0].from_us if spans else None
            tenure[f"{name}_to_us"] = spans[-1].to_us if spans else None
        # The leader epoch is the number of the partition's leadership.
        key_columns = ("broker", "incarnation", "partition", "leader_epoch")
        commits = commits_by_tenure.get(tuple(tenure[name] for name in key_columns), [])
        tenure["commits"] = len(commits)
        tenure["first_commit_us"] = min(commits, default=None)
        tenure["last_commit_us"] = max(commits, default=None)
    return tenures


def _find_tenures(trace: Trace) -> list[TableRow]:
    """Return the tenures of each incarnation of a broker, with their beginning and end only."""
    tenures = []
    kinds = (TraceKind.LOAD_COMPLETED, TraceKind.UNLOAD_COMPLETED)
    for (broker, incarnation), rows in trace.lives(*kinds):
        for index, row in enumerate(rows):
            if row.kind != TraceKind.LOAD_COMPLETED or not is_offsets_partition(row):
                continue
            end_us, reason = _end(trace, row, rows[index + 1 :])
            tenures.append(
                {
                    "partition": row.partition,
                    "leader_epoch": row.leader_epoch,
                    "broker": broker,
                    "incarnation": incarnation,
                    "start_us": row.time_us,
                    "end_us": end_us,
                    "end_reason": reason,
                }
            )
    return tenures


def _end(trace: Trace, load: TraceRow, later: list[TraceRow]) -> tuple[int, str]:
    """Return when and how the tenure that began with `load` ended: the earliest end counts.

    `later` are the later rows of the same broker. If several ends have the same time, the run's end
    comes first, then an unload or reload by the broker itself, then the end of its process.
    """
    # Each end is a tuple of its time, its rank among ends with the same time, and its reason. So
    # `min` picks the earliest end.
    ends = [(trace.end_us, 0, "run end")]
    next_row = next((row for row in later if row.partition == load.partition), None)
    if next_row is not None:
        is_unload = next_row.kind == TraceKind.UNLOAD_COMPLETED
        ends.append((next_row.time_us, 1, "unloaded" if is_unload else "reloaded"))
    # The end of this incarnation of the broker.
    death = trace.death(load.node, load.incarnation, load.time_us)
    if death is not None:
        ends.append((death.at_us, 2, death.by))
    end_us, _, reason = min(ends)
    return end_us, reason


def _acknowledged_commits(trace: Trace) -> dict[tuple[object, ...], list[int]]:
    """Return the times of acknowledged commits, by broker, incarnation, partition and epoch.

    A commit is acknowledged when its append to the log is complete. The row about the stored commit
    and the row about its append have the same correlation id.
    """
    commits = {
        (row.node, row.incarnation, row.correlation_id) for row in trace.of(TraceKind.COMMIT_STORED)
    }
    times_by_tenure: dict[tuple[object, ...], list[int]] = {}
    for row in trace.of(TraceKind.APPEND_COMPLETED):
        append = (row.node, row.incarnation, row.correlation_id)
        if row.error == "NONE" and append in commits:
            key = (row.node, row.incarnation, row.partition, row.leader_epoch)
            times_by_tenure.setdefault(key, []).append(row.time_us)
    return times_by_tenure
