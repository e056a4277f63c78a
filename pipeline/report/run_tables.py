"""The tables of one run, read back without Spark: lists of rows, small by their grain."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = dict[str, Any]  # Any: a cell's type is its column's, see docs/TABLES.md


class NotAnalysed(Exception):
    """A run lacks tables: it was never analysed, or by an older version."""


@dataclass(frozen=True, slots=True)
class RunTables:
    """Reads each table of a run directory once, when it is asked for."""

    directory: Path
    _read: dict[str, tuple[Row, ...]] = field(default_factory=dict)

    def rows(self, name: str, columns: Sequence[str] | None = None) -> tuple[Row, ...]:
        """Return the rows of a table, in no particular order; `columns` None: all.

        Raises: NotAnalysed if it is not there.
        """
        key = name if columns is None else f"{name}({','.join(columns)})"
        if key not in self._read:
            folder = self.directory / "tables" / name
            if not folder.is_dir():
                raise NotAnalysed(f"{self.directory} has no table {name}")
            chosen = None if columns is None else list(columns)
            self._read[key] = tuple(pq.read_table(folder, columns=chosen).to_pylist())
        return self._read[key]
