"""Write the reports of the runs of `report_runs`, as the command `coordlab report` does."""

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
    """The reports of some runs, by the names of the runs' recipes."""

    # The files with the pages.
    pages: Mapping[str, Path]
    # The facts about each run that its page shows: its manifest and its results.
    facts: Mapping[str, RunFacts]

    def owned_twice(self, run: str, partition: str) -> tuple[TableRow, ...]:
        """Return the rows of `ownership_overlaps` of one partition, in the order of time."""
        rows = read_table(self.pages[run].parent, "ownership_overlaps")
        overlaps = [row for row in rows if row["partition"] == partition]
        return tuple(sorted(overlaps, key=lambda row: int(row["from_us"])))


def make_reports(analysed: AnalysedRuns) -> Reports:
    """Write a report for each of these runs, and return the reports."""
    for summary in analysed.summaries.values():
        write_summary(summary)
    runs = analysed.directories
    facts = {name: facts_of(PastRun(directory)) for name, directory in runs.items()}
    pages = {name: build_report(directory, facts[name]) for name, directory in runs.items()}
    return Reports(pages=pages, facts=facts)
