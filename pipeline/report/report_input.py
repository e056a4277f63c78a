"""What a report is made from: a run's facts, its tables read back without Spark, its settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.report.facts import RunFacts, SettingFact
from pipeline.summary.figures import RunSummary

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


class Settings:
    """Looks settings up by section and name."""

    def __init__(self, facts: Sequence[SettingFact]) -> None:
        """Index the settings of a run."""
        self._values = {(fact.section, fact.name): fact.value for fact in facts}

    def of_cluster(self, name: str) -> str | None:
        """Return a setting of the brokers and controllers; None: the run does not say."""
        return self._values.get(("cluster.config", name))

    def of_group(self, group: str, name: str) -> str | None:
        """Return a setting of a group's members; None: the run does not say."""
        return self._values.get((f"groups.{group}.config", name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInput:
    """One run, as its report reads it.

    Shape: `facts` come from the run's JSON files, `tables` are Spark's, `summary` is their sum.
    """

    facts: RunFacts
    tables: RunTables
    summary: RunSummary

    @property
    def cut_off(self) -> bool:
        """Whether the run broke off: what it had not seen by then may still have come."""
        return self.facts.status != "completed" or not self.summary.completed

    @property
    def end_us(self) -> int:
        """The end of the time axis: the run's end, or its last event if it broke off."""
        ends: list[int] = [row["end_us"] for row in self.tables.rows("runs") if row["end_us"]]
        return max([*ends, self.facts.results_or_empty.ended_at_us, 1])
