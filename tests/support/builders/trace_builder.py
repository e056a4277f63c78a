"""Make a run's directory from a trace that was written by hand, and read the tables of a run.

A hand-written trace is a text with one event in each line, such as

    12.5 broker-2/1 load_completed partition=p offset=10 groups=1,2

The time of this event is 12.5 s. Its node is broker-2 after the first restart (incarnation 1), and
its kind is `load_completed`. `partition` and `offset` are columns of a trace. `groups` is not a
column, so it becomes a field of the column `detail`. There a value with commas is a list, and
`null` is null. `#` begins a comment. The lines need not be in the order of time.
"""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.in_memory.trace import TableRow
from protocol.trace import TRACE_COLUMNS, TraceKind, TraceRow

_COLUMN_TYPES = dict(TRACE_COLUMNS)


def parse_trace(text: str) -> list[TraceRow]:
    """Return the events of a hand-written trace, in the order of its lines.

    As in a real trace, `seq` counts the events of each incarnation of a node.
    """
    next_seq: dict[tuple[str, int], int] = {}
    rows = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        seconds, node_and_incarnation, kind, *assignments = words
        node, _, incarnation_text = node_and_incarnation.partition("/")
        incarnation = int(incarnation_text or 0)
        seq = next_seq.get((node, incarnation), 0)
        next_seq[node, incarnation] = seq + 1
        time_us = round(float(seconds) * 1_000_000)
        row: TableRow = {
            "run": "written by hand",
            "time_us": time_us,
            "node_time_us": time_us,
            "seq": seq,
            "node": node,
            "incarnation": incarnation,
            "kind": TraceKind(kind).value,
        }
        row |= _cells(assignments)
        rows.append(TraceRow(**row))
    return rows


def _cells(assignments: Sequence[str]) -> TableRow:
    """Return the columns that the words `name=value` give.

    The names that are no columns are collected in the column `detail`, which is JSON.
    """
    cells: TableRow = {}
    detail: dict[str, object] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name in _COLUMN_TYPES:
            cells[name] = value if _COLUMN_TYPES[name] == "string" else int(value)
        elif "," in value:
            # The value is a list. A list of one item is written with a comma at its end: `a,`.
            detail[name] = [item for item in value.split(",") if item]
        elif value == "null":
            detail[name] = None
        elif re.fullmatch(r"\d+\.\d+", value):
            detail[name] = float(value)
        else:
            detail[name] = int(value) if value.isdigit() else value
    if detail:
        cells["detail"] = json.dumps(detail)
    return cells


def write_run(
    directory: Path,
    rows: Sequence[TraceRow],
    *,
    files: int = 1,
    clock_error_us: int | None = None,
) -> Path:
    """Write a run's directory. The rows are spread over `files` files.

    If `clock_error_us` is given, there is also a manifest, which says by how much the clocks of the
    nodes may differ.
    """
    (directory / "events").mkdir(parents=True)
    if clock_error_us is not None:
        (directory / "manifest.json").write_text(json.dumps({"clock_error_us": clock_error_us}))
    cells = [msgspec.structs.asdict(row) for row in rows]
    # With several files, neighbouring rows go to different files.
    for index in range(files):
        write_events(directory / "events" / f"{index}.parquet", cells[index::files])
    return directory


def write_events(path: Path, rows: Sequence[TableRow]) -> None:
    """Write rows as one file of events, without checking them. Missing columns become null."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in TRACE_COLUMNS])
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def read_table(run: Path, name: str) -> list[TableRow]:
    """Return the rows of a table of a run. They are read with PyArrow, without Spark."""
    rows: list[TableRow] = pq.read_table(run / "tables" / name).to_pylist()
    return rows
