"""Writing reports: of one run, and of several side by side.

Imports the report's own packages late: Altair and Vega take a second that most commands need not.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chaos.results.run_directory import PastRun
from coordlab.report_facts import facts_of
from pipeline.report.facts import RunFacts
from pipeline.summary.comparison import Comparison, compare_runs
from pipeline.summary.figures import RunSummary

COMPARISON_FILE = "comparison.html"


def write_run_report(console: Console, past: PastRun, *, output: Path | None = None) -> Path:
    """Write the report of an analysed run, telling that it takes a moment; return where it is.

    Raises: NotAnalysed; OSError if it cannot be written.
    """
    from pipeline.report.build import build_report  # noqa: PLC0415 - imports Altair

    if not console.is_terminal:
        return build_report(past.path, facts_of(past), output=output)
    with console.status(f"writing the report of {past.manifest.run}"):
        return build_report(past.path, facts_of(past), output=output)


def write_comparison(runs: Sequence[tuple[RunFacts, RunSummary]], output: Path) -> Path:
    """Write the page that compares runs; return where it is. Raises: OSError."""
    from pipeline.report.comparison_page import build_comparison  # noqa: PLC0415 - imports Altair

    output.parent.mkdir(parents=True, exist_ok=True)
    return build_comparison(runs, output)


def compare_side_by_side(runs: Sequence[tuple[RunFacts, RunSummary]]) -> Comparison:
    """Put runs side by side, as the page does."""
    from pipeline.report.run_names import column_names  # noqa: PLC0415 - as above

    facts = [run for run, _ in runs]
    return compare_runs(
        [summary for _, summary in runs],
        names=column_names(facts),
        verdicts=[run.ended_as for run in facts],
    )
