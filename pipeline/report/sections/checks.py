"""The section `checks`: what each check promises, what it judged, and what it concluded."""

from markupsafe import Markup

from pipeline.report.charts.chart import Paragraph, Section
from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.answers import check_name
from pipeline.report.sentences.markup import section_link, sentence, unbroken
from pipeline.summary.story import check_figures, counted
from results_schema.results import CheckOutcome, CheckReport

_TONES = {
    CheckOutcome.PASS: "good",
    CheckOutcome.VIOLATED: "bad",
    CheckOutcome.INCONCLUSIVE: "warn",
    CheckOutcome.NOTHING_SEEN: "plain",
}
"""The tone of an outcome."""
_ORDER = (
    CheckOutcome.VIOLATED,
    CheckOutcome.INCONCLUSIVE,
    CheckOutcome.PASS,
    CheckOutcome.NOTHING_SEEN,
)
_LEAD = (
    "What Kafka promises its consumer groups, as the checkers judged it over the whole trace. "
    "They decide; tables and pictures explain."
)


def checks_section(run: ReportInput) -> Section | None:
    """Return one entry for each check, the broken first; None: the run has none."""
    if not run.facts.checks:
        return None
    checks = sorted(run.facts.checks, key=lambda check: _ORDER.index(check.outcome))
    entries = Markup("").join(
        _entry(check, run.facts.promises.get(check.check)) for check in checks
    )
    lead = _LEAD
    if run.facts.status == "failed":
        lead = "coordlab itself failed: what the checkers saw until then proves nothing."
    return Section(
        id="checks",
        title="Promises",
        lead=lead,
        parts=(Paragraph(html=Markup('<ul class="checks">{}</ul>').format(entries)),),
    )


def _entry(check: CheckReport, promise: str | None) -> Markup:
    evidence = Markup("")
    if check.findings_total:
        found = counted(check.findings_total, "finding")
        evidence = Markup(" {}").format(section_link(f"violations-{check.check}", found))
    judged = Markup("")
    if figures := check_figures(check):
        judged = Markup('<p class="about">Judged: {}.</p>').format(unbroken("; ".join(figures)))
    note = Markup("<p>{}</p>").format(sentence(check.note)) if check.note else Markup("")
    return Markup(
        '<li><div class="outcome {}">{}</div><div><h3>{}{}</h3><p>{}</p>{}{}</div></li>'
    ).format(
        _TONES[check.outcome],
        check.outcome.words,
        check_name(check).capitalize(),
        evidence,
        sentence(promise) if promise else "",
        judged,
        note,
    )
