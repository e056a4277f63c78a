"""Makes run directories from hand-written traces, and reads tables of a run without Spark.

A trace is a text file with one event per line, in any order of time. A line has the time in
seconds, the node, the kind of the event, and then words `name=value`, for example
`12.5 broker-2/1 load_completed partition=p offset=10 groups=1`. `broker-2/1` is broker-2 after its
first restart (incarnation 1). A name that is no column of the trace becomes a field of the column
`detail`; there the value `a,b,` is a list, and `null` is null. `#` begins a comment.
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
    """Return the events of a hand-written trace; `seq` follows the order of the lines.

    `seq` counts the lines of each incarnation of a node.
    """
    last_seq: dict[tuple[str, int], int] = {}
    rows = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        seconds, node_and_incarnation, kind, *assignments = words
        node, _, incarnation = node_and_incarnation.partition("/")
        life = (node, int(incarnation or 0))
        # -1, so that the first line of a life gets 0.
        last_seq[life] = last_seq.get(life, -1) + 1
        time_us = round(float(seconds) * 1_000_000)
        row: TableRow = {
            "run": "written by hand",
            "time_us": time_us,
            "node_time_us": time_us,
            "seq": last_seq[life],
            "node": node,
            "incarnation": life[1],
            "kind": TraceKind(kind).value,
        }
        row |= _cells(assignments)
        rows.append(TraceRow(**row))
    return rows


def _cells(assignments: Sequence[str]) -> TableRow:
    """Return the columns from words `name=value`. Names that are no columns go into the detail."""
    cells: TableRow = {}
    detail: dict[str, object] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name in _COLUMN_TYPES:
            cells[name] = value if _COLUMN_TYPES[name] == "string" else int(value)
        elif "," in value:
            # A list. A list of one item has a comma at its end: `a,`.
            detail[name] = [item for item in value.split(",") if item]
        elif value == "null":
            detail[name] = None
        elif re.fullmatch(r"\d+\.\d+", value):
            detail[name] = float(value)
        else:
            detail[name] = int(value) if value.isdigit() else value
    return cells | ({"detail": json.dumps(detail)} if detail else {})


def write_run(
    directory: Path,
    rows: Sequence[TraceRow],
    *,
    files: int = 1,
    clock_error_us: int | None = None,
) -> Path:
    """Write a run directory whose rows are spread over `files` event files in turn.

    clock_error_us: the error between clocks, which is written into a manifest. If it is None, there
        is no manifest.
    """
    (directory / "events").mkdir(parents=True)
    if clock_error_us is not None:
        (directory / "manifest.json").write_text(json.dumps({"clock_error_us": clock_error_us}))
    cells = [msgspec.structs.asdict(row) for row in rows]
    for index in range(files):
        write_events(directory / "events" / f"{index}.parquet", cells[index::files])
    return directory


def write_events(path: Path, rows: Sequence[TableRow]) -> None:
    """Write rows as one event file without checking them; missing columns are null."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in TRACE_COLUMNS])
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def read_table(run: Path, name: str) -> list[TableRow]:
    """Return the rows of a written table, as a reader other than Spark sees them."""
    rows: list[TableRow] = pq.read_table(run / "tables" / name).to_pylist()
    return rows
