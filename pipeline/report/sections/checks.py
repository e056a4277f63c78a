"""The section `checks`: what each check verifies, how many cases it judged, and its outcome.

A check judges whether a run kept one promise of Kafka's, such as that no acknowledged commit is
lost. Its code, the checker, has read the trace, the record of the run's events.
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
"""The tone of each outcome, which decides its colour on the page."""
_ORDER = (
    CheckOutcome.VIOLATED,
    CheckOutcome.INCONCLUSIVE,
    CheckOutcome.PASS,
    CheckOutcome.NOTHING_SEEN,
)
"""Order of the checks in the section, by their outcome."""
_LEAD = (
    "What Kafka promises its consumer groups, as the checkers judged it over the whole trace. "
    "They decide; tables and pictures explain."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """What the page says about one check.

    - `name`: the check's name in words.
    - `promise`: the promise of Kafka's that it judges; None if it is not known.
    - `figures`: texts such as how many cases it judged.
    - `tone`: the colour of its outcome.
    """

    check: CheckReport
    name: str
    promise: str | None
    figures: tuple[str, ...]
    tone: str


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
    """Return one entry for each check, violated promises first; None if the run has no checks."""
    if not run.facts.checks:
        return None
    checks = sorted(run.facts.checks, key=lambda check: _ORDER.index(check.outcome))
    entries = [check_facts(run, check) for check in checks]
    lead = _LEAD
    if run.facts.status == "failed":
        lead = "coordlab itself failed: what the checkers saw until then proves nothing."
    html = render_line("promises", "checks", entries)
    return Section(id="checks", title="Promises", lead=lead, parts=(Paragraph(html=html),))
