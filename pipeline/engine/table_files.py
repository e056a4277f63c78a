"""Where the tables of a run lie, and how a part of one is written."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.table_columns import arrow_schema


def emptied(directory: Path, table: str) -> Path:
    """Return where a table of the run in `directory` goes, made anew without files."""
    target = directory / "tables" / table
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    return target


def write_table(directory: Path, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write a whole table of a run, instead of an earlier one. Raises: OSError."""
    found = pa.Table.from_pylist(list(rows), arrow_schema(table))
    pq.write_table(found, emptied(directory, table) / "part-00000.parquet")
