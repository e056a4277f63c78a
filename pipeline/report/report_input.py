"""What every section of the report is made from: the run's facts, its tables and its summary."""

from dataclasses import dataclass

from pipeline.report.facts import RunFacts
from pipeline.report.run_tables import RunTables
from pipeline.summary.figures import RunSummary


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
