"""The reports of the runs of `report_runs`, written as the command `report` writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.results.run_directory import PastRun
from coordlab.report_facts import facts_of
from pipeline.in_memory.trace import TableRow
from pipeline.report.build import build_report
from pipeline.report.facts import RunFacts
from pipeline.summary.summary_file import write_summary
from tests.support.builders.trace_builder import read_table
from tests.support.worlds.analysed_runs import AnalysedRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """The page and the facts of each run, by the name of its recipe."""

    pages: Mapping[str, Path]
    facts: Mapping[str, RunFacts]

    def owned_twice(self, run: str, partition: str) -> tuple[TableRow, ...]:
        """Return the rows of `ownership_overlaps` of one data partition, the earliest first."""
        rows = read_table(self.pages[run].parent, "ownership_overlaps")
        overlaps = [row for row in rows if row["partition"] == partition]
        return tuple(sorted(overlaps, key=lambda row: int(row["from_us"])))


def make_reports(analysed: AnalysedRuns) -> Reports:
    """Write the reports of analysed runs, as the command `report` writes them."""
    for summary in analysed.summaries.values():
        write_summary(summary)
    runs = analysed.directories
    facts = {name: facts_of(PastRun(directory)) for name, directory in runs.items()}
    pages = {name: build_report(directory, facts[name]) for name, directory in runs.items()}
    return Reports(pages=pages, facts=facts)
