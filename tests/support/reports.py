"""The reports of `report_runs`: analysed by Spark in one call, then built as `report` does it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from chaos.run_directory import PastRun
from coordlab.report_facts import facts_of
from pipeline.report.build import build_report
from pipeline.report.facts import RunFacts
from pipeline.summary_file import write_summary
from pipeline.tables import analyze
from tests.support.report_runs import make_runs
from tests.support.trace_builder import TableRow, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Runs by their recipe's name: the run's facts, and the page that says them."""

    pages: Mapping[str, Path]
    facts: Mapping[str, RunFacts]

    def owned_twice(self, run: str, partition: str) -> tuple[TableRow, ...]:
        """Return the rows of `ownership_overlaps` of one data partition, the earliest first."""
        rows = read_table(self.pages[run].parent, "ownership_overlaps")
        found = [row for row in rows if row["partition"] == partition]
        return tuple(sorted(found, key=lambda row: int(row["from_us"])))


def make_reports(spark: SparkSession, root: Path) -> Reports:
    """Play every recipe below `root`, analyse all runs at once, and write their reports."""
    runs = make_runs(root)
    for summary in analyze(list(runs.values()), spark=spark):
        write_summary(summary)
    facts = {name: facts_of(PastRun(directory)) for name, directory in runs.items()}
    pages = {name: build_report(directory, facts[name]) for name, directory in runs.items()}
    return Reports(pages=pages, facts=facts)
