"""The table `coordinator_tenures` in plain Python: which broker was a coordinator, and when.

A tenure is the time in which a broker is the active coordinator of the groups in one partition of
`__consumer_offsets` (an offsets partition). A tenure begins when the broker has loaded the
partition (has read its groups into memory). It ends with the first of these events:

- The broker has unloaded the partition.
- It has loaded the partition again.
- Its process ends.
- The run ends.

A broker may learn late that another broker leads the partition now. So two tenures of a partition
can overlap.

The table has a row for each tenure. A row also tells how long the broker was paused or cut off
during the tenure. `pipeline.tables.coordinator_tenures` computes the same with Spark.
"""

from collections.abc import Sequence
from typing import NamedTuple

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
    """Return all tenures, with their pauses, cuts and acknowledged commits."""
    # Nodes still write rows after the run's end, while they stop. No table counts these rows.
    tenures = [tenure for tenure in _find_tenures(trace) if tenure["start_us"] <= trace.end_us]
    faults = faults_of(trace)
    commits_by_tenure = _acknowledged_commits(trace)
    for tenure in tenures:
        whole = Span(from_us=tenure["start_us"], to_us=tenure["end_us"])
        spans_of_others = [
            Span(from_us=other["start_us"], to_us=other["end_us"])
            for other in tenures
            if other is not tenure and other["partition"] == tenure["partition"]
        ]
        # The lengths of the overlaps are added. So a second in which two other tenures overlap with
        # this tenure counts as two seconds, as docs/TABLES.md defines the column.
        tenure["overlap_us"] = length_us(within(spans_of_others, whole))
        tenure.update(_span_columns("paused", within(trace.pauses(tenure["broker"]), whole)))
        tenure.update(_span_columns("cut", within(trace.cuts(tenure["broker"], faults), whole)))
        key_columns = ("broker", "incarnation", "partition", "leader_epoch")
        commits_us = commits_by_tenure.get(tuple(tenure[name] for name in key_columns), [])
        tenure["commits"] = len(commits_us)
        tenure["first_commit_us"] = min(commits_us, default=None)
        tenure["last_commit_us"] = max(commits_us, default=None)
    return tenures


def _span_columns(name: str, spans: Sequence[Span]) -> TableRow:
    """Return the columns about pauses or cuts: `paused_us`, `paused_from_us` and `paused_to_us`.

    These columns are the total length of the spans, the start of the first span, and the end of the
    last span.
    """
    return {
        f"{name}_us": length_us(spans),
        f"{name}_from_us": spans[0].from_us if spans else None,
        f"{name}_to_us": spans[-1].to_us if spans else None,
    }


def _find_tenures(trace: Trace) -> list[TableRow]:
    """Return all tenures, but only with their beginning and their end."""
    tenures = []
    kinds = (TraceKind.LOAD_COMPLETED, TraceKind.UNLOAD_COMPLETED)
    # A life is the time of one process of a broker, from its start to its end.
    for (broker, incarnation), rows in trace.lives(*kinds):
        for index, row in enumerate(rows):
            if row.kind != TraceKind.LOAD_COMPLETED or not is_offsets_partition(row):
                continue
            end_us, end_reason = _end(trace, row, rows[index + 1 :])
            tenures.append(
                {
                    "partition": row.partition,
                    "leader_epoch": row.leader_epoch,
                    "broker": broker,
                    "incarnation": incarnation,
                    "start_us": row.time_us,
                    "end_us": end_us,
                    "end_reason": end_reason,
                }
            )
    return tenures


def _end(trace: Trace, load: TraceRow, later: list[TraceRow]) -> tuple[int, str]:
    """Return when and why a tenure ended. The tenure began with the row `load`.

    `later` are the later rows of the same process. The earliest of three possible ends counts: the
    run's end, an unload or another load by the broker itself, and the end of its process.
    """
    # `min` picks the earliest end. If two ends have the same time, it picks the lower rank.
    ends = [_End(trace.end_us, rank=0, reason="run end")]
    next_row = next((row for row in later if row.partition == load.partition), None)
    if next_row is not None:
        is_unload = next_row.kind == TraceKind.UNLOAD_COMPLETED
        reason = "unloaded" if is_unload else "reloaded"
        ends.append(_End(next_row.time_us, rank=1, reason=reason))
    death = trace.death(load.node, load.incarnation, load.time_us)
    if death is not None:
        ends.append(_End(death.at_us, rank=2, reason=death.by))
    earliest = min(ends)
    return earliest.at_us, earliest.reason


class _End(NamedTuple):
    """A possible end of a tenure."""

    at_us: int
    rank: int
    reason: str


def _acknowledged_commits(trace: Trace) -> dict[tuple[object, ...], list[int]]:
    """Return the times of acknowledged commits, by broker, incarnation, partition and leader epoch.

    A commit is acknowledged when its append to the log is complete. The broker's rows about the
    commit and about the append have the same correlation id.
    """
    commits = {
        (row.node, row.incarnation, row.correlation_id) for row in trace.of(TraceKind.COMMIT_STORED)
    }
    times_by_tenure: dict[tuple[object, ...], list[int]] = {}
    for row in trace.of(TraceKind.APPEND_COMPLETED):
        is_commit = (row.node, row.incarnation, row.correlation_id) in commits
        if row.error == "NONE" and is_commit:
            key = (row.node, row.incarnation, row.partition, row.leader_epoch)
            times_by_tenure.setdefault(key, []).append(row.time_us)
    return times_by_tenure
