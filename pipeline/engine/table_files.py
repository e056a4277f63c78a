"""Writes tables as Parquet files into the folder `tables` of a run's directory."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.table_columns import arrow_schema


def empty_table_directory(directory: Path, table: str) -> Path:
    """Return an empty directory for a table of the run in `directory`.

    An earlier table with this name is removed.
    """
    target = directory / "tables" / table
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    return target


def write_table(directory: Path, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write a table of a run as one file. An earlier table with this name is removed.

    Raises: OSError if the table cannot be written.
    """
    content = pa.Table.from_pylist(list(rows), arrow_schema(table))
    pq.write_table(content, empty_table_directory(directory, table) / "part-00000.parquet")
