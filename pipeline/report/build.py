"""Builds the report of one run: first its sections, then the page.

After the first screen, the sections follow in the order of SECTIONS. A section is left out if it
has nothing to show. The contents come from the run's JSON files (`RunFacts`), and from the tables
of the run's analysis.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.report.charts.chart import Chart, Section
from pipeline.report.facts import RunFacts
from pipeline.report.lanes import messages
from pipeline.report.lanes.availability import availability_lane
from pipeline.report.lanes.coordinators import coordinators_lane
from pipeline.report.lanes.faults import faults_lane
from pipeline.report.lanes.groups import group_detail, groups_lane
from pipeline.report.lanes.lives import lives_lane
from pipeline.report.lanes.ownership import ownership_detail, ownership_lane
from pipeline.report.lanes.rebalances import rebalance_detail, rebalances_lane
from pipeline.report.page import Page, TimeMark, render
from pipeline.report.report_input import NotAnalysed, ReportInput, RunTables
from pipeline.report.sections.blast_radius import blast_radius_section
from pipeline.report.sections.checks import checks_section
from pipeline.report.sections.configuration import configuration_section
from pipeline.report.sections.felt import felt_section
from pipeline.report.sections.headline import headline
from pipeline.report.sections.phases import phases_section
from pipeline.report.sections.rebalances import rebalances_section
from pipeline.report.sections.replay import replay_section
from pipeline.report.sections.two_at_once import two_at_once_section
from pipeline.report.sections.violations import violations_section
from pipeline.report.two_designs.section import designs_section
from pipeline.summary.summary_file import read_summary

REPORT_FILE = "report.html"
"""Name of the report's file in the run's directory."""


def timeline(run: ReportInput) -> Section | None:
    """Return the section with the lanes, which are the charts on the time axis of the run.

    Returns None if there is nothing to draw.
    """
    charts: tuple[Chart | None, ...] = (
        faults_lane(run),
        lives_lane(run),
        coordinators_lane(run),
        groups_lane(run),
        group_detail(run),
        rebalances_lane(run),
        rebalance_detail(run),
        ownership_lane(run),
        ownership_detail(run),
        availability_lane(run),
    )
    drawn = tuple(chart for chart in charts if chart is not None)
    if not drawn:
        return None
    return Section(
        id="timeline",
        title="Timeline",
        lead="What happened when: all lanes share one time axis, and move and zoom together.",
        parts=drawn,
    )


def message_diagrams(run: ReportInput) -> Section | None:
    """Return the section with the message diagrams; None if no fault has messages around it."""
    drawn = messages.lanes(run)
    if not drawn:
        return None
    lead = "Requests and answers around a fault. The links lead to its turns."
    left_out = messages.left_out(run)
    if left_out:
        lead += f" {left_out:,} later faults have no diagram; tables/messages has theirs."
    return Section(id="messages", title="Messages around each fault", lead=lead, parts=drawn)


SECTIONS: Sequence[Callable[[ReportInput], Section | None]] = (
    violations_section,
    phases_section,
    felt_section,
    designs_section,
    two_at_once_section,
    timeline,
    message_diagrams,
    checks_section,
    blast_radius_section,
    rebalances_section,
    configuration_section,
    replay_section,
)
"""The functions that build the sections, in the order of the page. Broken promises come first. A
function returns None if the run has nothing to show in the function's section."""


def build_report(directory: Path, facts: RunFacts, *, output: Path | None = None) -> Path:
    """Write the report of the run in `directory`, and return its path.

    `output` is the path of the report; None means `<run>/report.html`.
    Raises: NotAnalysed if tables of the run or their summary are missing.
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
    built = [build_section(run) for build_section in sections]
    first_screen = headline(run)
    return render(
        Page(
            title=f"{run.facts.manifest.experiment}: {first_screen.verdict} - coordlab",
            headline=first_screen,
            sections=[section for section in built if section is not None],
            end_s=run.end_us / 1_000_000,
            marks=time_marks(run),
        )
    )


def time_marks(run: ReportInput) -> tuple[TimeMark, ...]:
    """Return the faults that were injected, for the overview of the time axis."""
    marks = []
    for fault in run.facts.faults:
        if fault.injected_at_us is None:
            continue
        # A fault that was never healed lasted until the run's end. A momentary fault, such as an
        # election, has no end.
        to_us = run.end_us if fault.healed_at_us is None else fault.healed_at_us
        mark = TimeMark(
            label=f"{fault.fault_id} ({fault.hit})",
            from_s=fault.injected_at_us / 1_000_000,
            to_s=None if fault.momentary else to_us / 1_000_000,
            is_by_accident=fault.is_by_accident,
        )
        marks.append(mark)
    return tuple(sorted(marks, key=lambda mark: mark.from_s))


def write_report(html: str, path: Path) -> Path:
    """Write a page to `path`, and return the path.

    The page is written under a temporary name and then renamed, so that no reader gets half a page.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(html, encoding="utf-8")
    temporary.replace(path)
    return path
