"""The table `figures` in plain Python: each fault in a few numbers.

After a crash, for example, `broker_phases` has the phase `detect` of each offsets partition that
moved. The table `figures` has one row about this measure, with its median, p90, p99 and maximum
over the partitions. A measure belongs to one of three chains:

- `broker`: the phases of an offsets partition that moves to a new coordinator;
- `client`: the phases of a member until the new coordinator serves it;
- `gap`: the longest time without service of a member, a data partition or a group.

Each of these partitions, members and groups is a subject of the measure.
`pipeline.tables.figure_table` computes the same with Spark.
"""

from typing import NamedTuple

from pipeline.in_memory.availability import availability_of
from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.client_phases import client_phases_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace

_BROKER = {
    "detect": "detect_us",
    "publish": "publish_us",
    "load wait": "load_wait_us",
    "load": "load_us",
    "records read": "records",
    "bytes read": "bytes",
}
_CLIENT = {
    "notice": "notice_us",
    "rediscover": "rediscover_us",
    "accept": "accept_us",
    "join": "join_us",
    "sync": "sync_us",
    "longest wait": "longest_wait_us",
    "lookups": "attempts",
    "stale answers": "stale_answers",
    "old named itself": "self_answers",
    "timeouts at old": "commit_timeouts",
    "heartbeats at old": "late_heartbeats",
}
"""For each measure of the chains `broker` and `client`, the column that has its values."""
_GAPS = {"commit gap": "member", "processing gap": "partition", "no coordinator": "group"}
"""For each measure of the chain `gap`, the kind of its subjects. The values are in `gap_us`."""
_BEGIN_AND_END = {
    "broker": ("fault_us", "active_us"),
    "client": ("fault_us", "accepted_us"),
    "gap": ("before_us", "after_us"),
}
"""For each chain, the columns with the beginning and the end of the time in which the values of a
subject were measured.
"""
_PERCENTILES = {"p50": (50, 1), "p90": (90, 10), "p99": (99, 100)}
"""For each percentile, the percentage and the number of samples that it needs. With fewer samples,
a percentile would say nothing about the rare values above it.
"""


def figures_of(trace: Trace) -> list[TableRow]:
    """Return a row for each fault and measure that has subjects."""
    table = []
    measures = _measures(trace)
    for fault in faults_of(trace):
        for measure in measures:
            subjects = [row for row in measure.rows if row["fault"] == fault["fault"]]
            if not subjects:
                continue
            about = {
                "fault": fault["fault"],
                "kind": fault["kind"],
                "chain": measure.chain,
                "measure": measure.name,
                # The names of columns with times end in `_us`; all other columns hold counts.
                "is_time": measure.column.endswith("_us"),
            }
            values = [row[measure.column] for row in subjects]
            spans = [_span(measure.chain, row, fault) for row in subjects]
            span = {
                "from_us": min(from_us for from_us, _ in spans),
                "to_us": max(to_us for _, to_us in spans),
            }
            table.append(about | _percentiles(values) | span)
    return table


class _Measure(NamedTuple):
    """A measure, the column with its values, and the rows of the table that has the column."""

    chain: str
    name: str
    column: str
    rows: list[TableRow]


def _measures(trace: Trace) -> list[_Measure]:
    """Return all measures, in the order of the table."""
    broker_rows = broker_phases_of(trace)
    client_rows = client_phases_of(trace)
    measures = [_Measure("broker", name, column, broker_rows) for name, column in _BROKER.items()]
    measures += [_Measure("client", name, column, client_rows) for name, column in _CLIENT.items()]
    for name, subject_kind in _GAPS.items():
        rows = [row for row in availability_of(trace) if row["subject_kind"] == subject_kind]
        measures.append(_Measure("gap", name, "gap_us", rows))
    return measures


def _span(chain: str, row: TableRow, fault: TableRow) -> tuple[int, int]:
    """Return the beginning and the end of the time in which a subject's values were measured."""
    begin_column, end_column = _BEGIN_AND_END[chain]
    from_us: int = row[begin_column]
    # A member that had to join again is served only after its join. The end of the join is not in
    # the table, so the time lasts until the next fault.
    had_to_join = chain == "client" and row["join_us"] is not None
    to_us: int | None = None if had_to_join else row[end_column]
    if to_us is None:
        # `until_us` is the next fault of the run. If the next fault does not affect this subject's
        # group, the subject's time can begin even after the next fault.
        to_us = max(from_us, fault["until_us"])
    return from_us, to_us


def _percentiles(values: list[int | None]) -> TableRow:
    """Return the percentiles and the maximum of some values. A value that is None is not known.

    A percentile is always one of the values. For example, the 90th percentile is the smallest value
    that is at least as large as 90 % of all values (nearest rank).
    """
    known = sorted(value for value in values if value is not None)
    columns: TableRow = {
        "samples": len(known),
        "missing": len(values) - len(known),
        "max": max(known, default=None),
    }
    for name, (percent, samples_needed) in _PERCENTILES.items():
        # For example, the 90th percentile of 12 values is the 11th value, because 90 % of 12 is
        # 10.8, which is rounded up. `-(-a // b)` is a / b, rounded up.
        rank = -(-len(known) * percent // 100)
        columns[name] = known[rank - 1] if len(known) >= samples_needed else None
    return columns
