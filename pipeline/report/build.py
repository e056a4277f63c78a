"""Build the report of one run: its sections in order, then the page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.report.charts.chart import Section
from pipeline.report.facts import RunFacts
from pipeline.report.lanes.section import message_diagrams, timeline
from pipeline.report.page import Page, TimeMark, render
from pipeline.report.report_input import ReportInput
from pipeline.report.run_tables import NotAnalysed, RunTables
from pipeline.report.sections.blast_radius import blast_radius_section
from pipeline.report.sections.checks import checks_section
from pipeline.report.sections.configuration import configuration_section
from pipeline.report.sections.headline import headline
from pipeline.report.sections.phases import phases_section
from pipeline.report.sections.rebalances import rebalances_section
from pipeline.report.sections.replay import replay_section
from pipeline.report.sections.two_at_once import two_at_once_section
from pipeline.report.sections.violations import violations_section
from pipeline.summary.summary_file import read_summary

REPORT_FILE = "report.html"

SECTIONS: Sequence[Callable[[ReportInput], Section | None]] = (
    violations_section,  # a broken promise comes first
    phases_section,
    two_at_once_section,
    timeline,
    message_diagrams,
    checks_section,
    blast_radius_section,
    rebalances_section,
    configuration_section,
    replay_section,
)
"""The sections of a report, in the page's order. None: it has nothing to say about this run."""


def build_report(directory: Path, facts: RunFacts, *, output: Path | None = None) -> Path:
    """Write the report of the run in `directory` and return where it stands.

    `output` None: `<run>/report.html`.
    Raises: NotAnalysed if its tables or their summary are missing.
    """
    summary = read_summary(directory)
    if summary is None:
        raise NotAnalysed(f"{directory} has no summary of its tables")
    run = ReportInput(facts=facts, tables=RunTables(directory), summary=summary)
    return write_report(report_html(run), output or directory / REPORT_FILE)


def report_html(
    run: ReportInput, sections: Sequence[Callable[[ReportInput], Section | None]] = SECTIONS
) -> str:
    """Return the page of a run.

    Raises: NotAnalysed if a table is missing.
    """
    found = [section for make in sections if (section := make(run)) is not None]
    first = headline(run)
    return render(
        Page(
            title=f"{run.facts.manifest.experiment}: {first.verdict} - coordlab",
            headline=first,
            sections=found,
            end_s=run.end_us / 1_000_000,
            marks=time_marks(run),
        )
    )


def time_marks(run: ReportInput) -> tuple[TimeMark, ...]:
    """Return the faults that were injected, for the overview of the time axis."""
    return tuple(
        TimeMark(
            label=f"{fault.fault_id} ({fault.hit})",
            from_s=fault.injected_at_us / 1_000_000,
            to_s=_until(run, fault.momentary, fault.healed_at_us),
        )
        for fault in sorted(run.facts.faults, key=lambda fault: fault.injected_at_us or 0)
        if fault.injected_at_us is not None
    )


def _until(run: ReportInput, momentary: bool, healed_us: int | None) -> float | None:
    if momentary:
        return None
    return (run.end_us if healed_us is None else healed_us) / 1_000_000


def write_report(html: str, path: Path) -> Path:
    """Write a page in one step, so that no reader meets half of one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(html, encoding="utf-8")
    temporary.replace(path)
    return path
