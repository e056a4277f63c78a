"""The table `figures` in plain Python: percentiles over the rows of other tables.

A percentile by nearest rank is always one of the values. The 90th, for example, is the smallest
value that is at least as large as 90 % of all values.

A measure is one quantity, such as the length of a phase. For one fault it has a value for each of
its subjects: the partitions, members or groups that the fault concerned. The value is None if it is
unknown. A measure belongs to one of three chains:

- `broker`: the phases in which an offsets partition moves to a new leader, and so its groups to a
  new coordinator; the subjects are the partitions;
- `client`: the phases of a member until the new coordinator serves it; the subjects are the
  members;
- `gap`: the longest time without service; the subjects are members, partitions and groups.

`pipeline.tables.figure_table` computes the same with Spark.
"""

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
"""The measures of the chains `broker` (_BROKER) and `client` (_CLIENT), each with the column that
holds its values.
"""
_GAPS = {"commit gap": "member", "processing gap": "partition", "no coordinator": "group"}
"""Each measure of the chain `gap`, and its kind of subject. The column is always `gap_us`."""
_ENDS = {
    "broker": ("fault_us", "active_us"),
    "client": ("fault_us", "accepted_us"),
    "gap": ("before_us", "after_us"),
}
"""Columns with the beginning and the end of the time that a subject's values describe."""
_RANKED = {"p50": (50, 1), "p90": (90, 10), "p99": (99, 100)}
"""The percentiles. Each name is mapped to the percentage, and to the smallest number of samples
with which the percentile is given: fewer samples say nothing about the rare values above it.
"""


def figures_of(trace: Trace) -> list[TableRow]:
    """Return every measure of every fault that has subjects."""
    broker, client = broker_phases_of(trace), client_phases_of(trace)
    available = availability_of(trace)

    # Each measure as a tuple: its chain, its name, the column with its values, and the rows of the
    # table that has this column.
    measured = [("broker", name, column, broker) for name, column in _BROKER.items()]
    measured += [("client", name, column, client) for name, column in _CLIENT.items()]
    for name, subject in _GAPS.items():
        rows = [row for row in available if row["subject_kind"] == subject]
        measured.append(("gap", name, "gap_us", rows))

    table = []
    for fault in faults_of(trace):
        for chain, name, column, rows in measured:
            subjects = [row for row in rows if row["fault"] == fault["fault"]]
            values = [row[column] for row in subjects]
            # The table has no row about a measure without subjects.
            if not values:
                continue
            about = {
                "fault": fault["fault"],
                "kind": fault["kind"],
                "chain": chain,
                "measure": name,
                # The names of columns with times end in `_us`; all other columns hold counts.
                "is_time": column.endswith("_us"),
            }
            spans = [_span(chain, row, fault) for row in subjects]
            span = {
                "from_us": min(from_us for from_us, _ in spans),
                "to_us": max(to_us for _, to_us in spans),
            }
            table.append(about | _percentiles(values) | span)
    return table


def _span(chain: str, row: TableRow, fault: TableRow) -> tuple[int, int]:
    """Return beginning and end of the time that a subject's values describe."""
    begin_column, end_column = _ENDS[chain]
    from_us: int = row[begin_column]
    # A member that had to rejoin is served again only after its join. The row lacks the end of the
    # join, so the time lasts until the next fault.
    had_to_join = chain == "client" and row["join_us"] is not None
    to_us: int | None = None if had_to_join else row[end_column]
    if to_us is None:
        to_us = max(from_us, fault["until_us"])
    return from_us, to_us


def _percentiles(values: list[int | None]) -> TableRow:
    """Return a figure's percentiles and maximum; a percentile needs enough samples."""
    known = sorted(value for value in values if value is not None)
    columns: TableRow = {
        "samples": len(known),
        "missing": len(values) - len(known),  # subjects without a value
        "max": max(known, default=None),
    }
    for name, (percent, needed) in _RANKED.items():
        # Ranks count from 1. The rank is the number of values times the percentage, rounded up:
        # `-(-a // b)` is a / b rounded up.
        rank = -(-len(known) * percent // 100)
        columns[name] = known[rank - 1] if len(known) >= needed else None
    return columns
