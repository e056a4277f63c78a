"""The input of a report: the facts about a run, its tables, and the summary of the tables.

The analysis of the run has written each table as a folder of Parquet files. This module reads them
without Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.report.facts import RunFacts, SettingFact
from pipeline.summary.figures import RunSummary

Row = dict[str, Any]
"""A row of a table. Any: each column has its own type (docs/TABLES.md)."""


class NotAnalysed(Exception):
    """A run lacks a table. It was not analysed, or an older version of coordlab has analysed it."""


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables of a run directory. Each table is read at its first use, and kept."""

    directory: Path
    _read: dict[str, tuple[Row, ...]] = field(default_factory=dict)

    def rows(self, name: str, columns: Sequence[str] | None = None) -> tuple[Row, ...]:
        """Return the rows of a table, in no particular order.

        If `columns` is given, the rows have only these columns.
        Raises: NotAnalysed if the table does not exist.
        """
        # The same table can be read twice, with all columns and with some of them.
        key = name if columns is None else f"{name}({','.join(columns)})"
        if key not in self._read:
            folder = self.directory / "tables" / name
            if not folder.is_dir():
                raise NotAnalysed(f"{self.directory} has no table {name}")
            chosen = None if columns is None else list(columns)
            self._read[key] = tuple(pq.read_table(folder, columns=chosen).to_pylist())
        return self._read[key]


class Settings:
    """The settings of a run, by section and name."""

    def __init__(self, facts: Sequence[SettingFact]) -> None:
        """Index the settings of a run."""
        self._values = {(fact.section, fact.name): fact.value for fact in facts}

    def of_cluster(self, name: str) -> str | None:
        """Return a setting of the brokers and controllers; None if the run did not record it."""
        return self._values.get(("cluster.config", name))

    def of_group(self, group: str, name: str) -> str | None:
        """Return a setting of a group's members; None if the run did not record it."""
        return self._values.get((f"groups.{group}.config", name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInput:
    """One run: `facts` from its JSON files, the `tables` of its analysis, and their `summary`."""

    facts: RunFacts
    tables: RunTables
    summary: RunSummary

    @property
    def cut_off(self) -> bool:
        """True if the run did not complete.

        Then a page must not say "never": what did not happen might have happened later.
        """
        return self.facts.status != "completed" or not self.summary.completed

    @property
    def end_us(self) -> int:
        """The end of the time axis: the run's end, or its last event if it did not complete."""
        ends: list[int] = [row["end_us"] for row in self.tables.rows("runs") if row["end_us"]]
        # The end is at least 1. So even the axis of a run without events has a length.
        return max([*ends, self.facts.results_or_empty.ended_at_us, 1])
