"""The section "Violations": what proves that a promise of Kafka's was broken.

A check has a finding for each violation, such as "offset 7 was lost". For each finding, the section
shows the rows of the trace that prove it, and the rows that led to it. Each row has a link to its
moment in the charts of the page.

A guard is one of Kafka's safety rules. If the experiment switched a guard off, the section says so,
because the violation may be what this guard prevents.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.report.charts.chart import Paragraph, Part, Section
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput
from pipeline.report.sections.checks import check_facts
from protocol.trace import TraceRow
from results_schema.evidence_text import describe_event
from results_schema.results import CheckReport, Finding

MAX_STEPS = 12
"""Maximum number of rows of evidence that an unfolded finding shows at once."""
MAX_OPEN = 2
"""Maximum number of findings of a check that are unfolded at first. All later findings of the check
are folded under a summary line.
"""
_GUARDS = "cluster.guards"
"""The section of an experiment that switches guards off."""
_OFFSETS_TOPIC = "__consumer_offsets"
_MEMBER_ID = re.compile(r"((\S+-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""A member id, which is the client's id and a UUID: `consumer-a-1-0c5f9d1e-93f1-...`. The first
group of the pattern is the whole id. The second group is the id's short form, such as
`consumer-a-1-0c5f9d1e`.
"""
_LANES = {
    "lane-faults": ("fault_", "node_", "broker_", "run_stage"),
    "lane-groups": ("group_", "rebalance_", "generation_", "assignment_", "member_"),
    "lane-ownership": ("partitions_", "records_", "position_"),
    "lane-availability": ("offsets_", "commit_"),
}
"""The charts (lanes) that show rows of the trace. A row belongs to a lane if the name of its kind
begins with one of these texts."""
_LEAD = (
    "Each finding is proven by the rows of the trace below it; those above them led to it. A "
    "moment leads to its place in the lanes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """A row of the trace as text."""

    time_us: int
    node: str
    lane: str
    pieces: tuple[tuple[str, str, str], ...]
    """The text, cut at the member ids, because the page shows a member id in its short form.

    A piece consists of a text, the member id that follows it, and the short form of the id, such as
    `("heartbeat of ", "consumer-a-1-0c5f9d1e-93f1-...", "consumer-a-1-0c5f9d1e")`. In the last
    piece, the id and its short form are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFacts:
    """One finding with the rows that led to it, and the rows that prove it."""

    finding: Finding
    opened: bool
    """True if the page shows the finding unfolded."""
    led_to: tuple[EvidenceRow, ...]
    proof: tuple[EvidenceRow, ...]
    shown: int = MAX_STEPS
    """Maximum number of rows of the proof that the page shows when the finding is unfolded."""


def violations_section(run: ReportInput) -> Section | None:
    """Return the section; None if no promise was violated."""
    violated = [check for check in run.facts.checks if check.findings_total]
    if not violated:
        return None
    parts: list[Part] = [
        Paragraph(html=render_line("promises", "guard", fact.name))
        for fact in run.facts.settings
        if fact.section == _GUARDS and fact.differs
    ]
    for check in violated:
        parts += _parts_about_one_check(run, check)
    return Section(id="violations", title="Violated promises", lead=_LEAD, parts=tuple(parts))


def _parts_about_one_check(run: ReportInput, check: CheckReport) -> Iterator[Part]:
    """Yield a paragraph on the violated promise, and one for each finding."""
    yield Paragraph(html=render_line("promises", "violated", check_facts(run, check)))
    for index, finding in enumerate(check.findings):
        facts = FindingFacts(
            finding=finding,
            opened=index < MAX_OPEN,
            led_to=tuple(_evidence_row(step) for step in finding.led_to),
            proof=tuple(_evidence_row(step) for step in finding.evidence),
        )
        yield Paragraph(html=render_line("promises", "finding", facts))
    hidden = check.findings_total - len(check.findings)
    if hidden > 0:
        yield Paragraph(html=render_line("promises", "hidden", hidden))


def _evidence_row(step: TraceRow) -> EvidenceRow:
    """Return a row of the trace as text, which is cut at its member ids."""
    # `split` returns text, id, short id, text, id, short id, ..., text. The last piece has no id,
    # so two empty texts complete it.
    parts = [*_MEMBER_ID.split(describe_event(step)), "", ""]
    texts, ids, short_ids = parts[0::3], parts[1::3], parts[2::3]
    pieces = tuple(zip(texts, ids, short_ids, strict=True))
    return EvidenceRow(time_us=step.time_us, node=step.node, lane=lane_of(step), pieces=pieces)


def lane_of(step: TraceRow) -> str:
    """Return the lane that shows a row of the trace."""
    for lane, beginnings in _LANES.items():
        if step.kind.startswith(beginnings):
            return lane
    # Other rows about a partition of data are shown in the ownership lane. All remaining rows, such
    # as rows about partitions of `__consumer_offsets`, are shown in the lane of the coordinators.
    if step.partition is not None and not step.partition.startswith(_OFFSETS_TOPIC):
        return "lane-ownership"
    return "lane-coordinators"
