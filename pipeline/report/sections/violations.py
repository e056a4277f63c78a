"""The section `violations`: the evidence of each violated promise as a story with links."""

import re
from collections.abc import Iterator

from markupsafe import Markup

from pipeline.report.charts.chart import Paragraph, Part, Section
from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.answers import check_name
from pipeline.report.sentences.markup import moment_link, sentence, unbroken
from pipeline.summary.story import counted, moment_text
from protocol.trace import TraceRow
from results_schema.evidence_text import what_happened
from results_schema.results import CheckReport, Finding

MAX_STEPS = 12
"""So many steps of a story are shown at once; the rest is folded."""
MAX_OPEN = 2
"""So many findings of a check are told openly; the others are folded, a line each."""
_GUARDS = "cluster.guards"
_OFFSETS_TOPIC = "__consumer_offsets"
_MEMBER_ID = re.compile(r"((\S+-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""A member id: the client's id and a UUID."""
_LANES = {
    "lane-faults": ("fault_", "node_", "broker_", "run_stage"),
    "lane-groups": ("group_", "rebalance_", "generation_", "assignment_", "member_"),
    "lane-ownership": ("partitions_", "records_", "position_"),
    "lane-availability": ("offsets_", "commit_"),
}
"""Where the kinds of rows of the trace are seen, by how their names begin; else coordinators."""
_LEAD = (
    "Each finding is proven by the rows of the trace below it; those above them tell why it could "
    "happen. A moment leads to it in the lanes."
)


def violations_section(run: ReportInput) -> Section | None:
    """Return every finding with its story; None: no promise was violated."""
    broken = [check for check in run.facts.checks if check.findings_total]
    if not broken:
        return None
    parts: list[Part] = list(_guards(run))
    for check in broken:
        parts += _check(check, run.facts.promises.get(check.check))
    return Section(id="violations", title="Violated promises", lead=_LEAD, parts=tuple(parts))


def _guards(run: ReportInput) -> Iterator[Paragraph]:
    """Say which guards this run had switched off: they may be what the findings show."""
    for fact in run.facts.settings:
        if fact.section == _GUARDS and fact.differs:
            yield Paragraph(
                html=Markup(
                    '<p class="notice">The guard <code>{}</code> was switched off in this run. '
                    "Kafka has no such switch: what follows is what the guard prevents.</p>"
                ).format(fact.name)
            )


def _check(check: CheckReport, promise: str | None) -> Iterator[Part]:
    yield Paragraph(
        html=Markup('<h3 id="violations-{}">{}: {}</h3><p>The promise: {}</p>').format(
            check.check,
            check_name(check).capitalize(),
            counted(check.findings_total, "finding"),
            sentence(promise) if promise else "not known to this version.",
        )
    )
    for place, finding in enumerate(check.findings):
        yield Paragraph(html=_finding(finding, opened=place < MAX_OPEN))
    hidden = check.findings_total - len(check.findings)
    if hidden > 0:
        more = counted(hidden, "more finding")
        text = Markup("<p>{} of the same kind: counted, not kept.</p>").format(more)
        yield Paragraph(html=text)


def _finding(finding: Finding, *, opened: bool) -> Markup:
    return Markup(
        '<details class="finding"{}><summary>{} <span class="muted">{}</span></summary>{}</details>'
    ).format(
        Markup(" open") if opened else "",
        sentence(finding.summary),
        unbroken(moment_text(finding.time_us)),
        _story(finding),
    )


def _story(finding: Finding) -> Markup:
    steps = finding.evidence
    if not steps:
        return Markup("<p>No row of the trace is kept for it.</p>")
    whole = moment_link(
        steps[0].time_us,
        steps[-1].time_us,
        lane=lane_of(steps[-1]),
        text="Show all of it in the lanes",
    )
    shown = _steps(steps[:MAX_STEPS])
    rest = steps[MAX_STEPS:]
    more = Markup("")
    if rest:
        more = Markup("<details><summary>{}</summary>{}</details>").format(
            counted(len(rest), "more row"), _steps(rest)
        )
    before = Markup("")
    if finding.led_to:
        before = Markup("<p>What led to it:</p>{}<p>What proves it:</p>").format(
            _steps(finding.led_to)
        )
    return Markup("<p>{}</p>{}{}{}").format(whole, before, shown, more)


def _steps(steps: tuple[TraceRow, ...]) -> Markup:
    lines = Markup("").join(
        Markup("<li>{} <b>{}</b> <span>{}</span></li>").format(
            moment_link(step.time_us, lane=lane_of(step)),
            step.node,
            _shortened(what_happened(step)),
        )
        for step in steps
    )
    return Markup('<ol class="story">{}</ol>').format(lines)


def _shortened(text: str) -> Markup:
    """Return a row's text with its member ids cut: the client's name tells them apart.

    The whole id is in the element's title, and in results.json.
    """
    shown = '<span title="{}">{}…</span>'
    parts = _MEMBER_ID.split(text)  # text, id, kept part of it, text, ...
    told = Markup("").join(
        Markup("{}").format(before) + Markup(shown).format(whole, kept)
        for before, whole, kept in zip(parts[0::3], parts[1::3], parts[2::3], strict=False)
    )
    return told + Markup("{}").format(parts[-1])


def lane_of(step: TraceRow) -> str:
    """Return the lane in which a row of the trace is seen."""
    for lane, beginnings in _LANES.items():
        if step.kind.startswith(beginnings):
            return lane
    if step.partition is not None and not step.partition.startswith(_OFFSETS_TOPIC):
        return "lane-ownership"
    return "lane-coordinators"
