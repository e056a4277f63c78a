"""The section `checks`: the promise that each check judges, its outcome, and its figures.

A check judges whether a run kept one promise of Kafka's, such as that no acknowledged commit is
lost. The checkers have judged the trace when the run ended. The section only shows the outcomes.
"""

from dataclasses import dataclass

from pipeline.report.charts.chart import Paragraph, Section
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.answers import check_name
from pipeline.summary.story import check_figures
from results_schema.results import CheckOutcome, CheckReport

_TONES = {
    CheckOutcome.PASS: "good",
    CheckOutcome.VIOLATED: "bad",
    CheckOutcome.INCONCLUSIVE: "warn",
    CheckOutcome.NOTHING_SEEN: "plain",
}
"""The tone of each outcome. It decides the colour of the outcome on the page."""
_ORDER = (
    CheckOutcome.VIOLATED,
    CheckOutcome.INCONCLUSIVE,
    CheckOutcome.PASS,
    CheckOutcome.NOTHING_SEEN,
)
"""The order of the checks in the section, by their outcome."""
_LEAD = (
    "What Kafka promises its consumer groups, as the checkers judged it over the whole trace. "
    "They decide; tables and pictures explain."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """What the page says about one check."""

    check: CheckReport
    name: str
    """The check's name in words: `durable commits`."""
    promise: str | None
    """The promise that the check judges; None if this version of coordlab does not know the check.
    """
    figures: tuple[str, ...]
    """Texts such as `12 commits`, which say how many cases the check judged."""
    tone: str
    """Decides the colour of the check's outcome (_TONES)."""


def check_facts(run: ReportInput, check: CheckReport) -> CheckFacts:
    """Return the facts about a check."""
    return CheckFacts(
        check=check,
        name=check_name(check),
        promise=run.facts.promises.get(check.check),
        figures=tuple(check_figures(check)),
        tone=_TONES[check.outcome],
    )


def checks_section(run: ReportInput) -> Section | None:
    """Return the section; None if the run has no checks."""
    if not run.facts.checks:
        return None
    checks = sorted(run.facts.checks, key=lambda check: _ORDER.index(check.outcome))
    entries = [check_facts(run, check) for check in checks]
    lead = _LEAD
    if run.facts.status == "failed":
        lead = "coordlab itself failed: what the checkers saw until then proves nothing."
    html = render_line("promises", "checks", entries)
    return Section(id="checks", title="Promises", lead=lead, parts=(Paragraph(html=html),))
