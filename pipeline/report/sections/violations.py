"""The section "Violations": what proves that a promise of Kafka's was broken.

Each finding of a check is one violation. The section shows it with the rows of the trace that prove
it, and those that led to it. Each row is a link to its moment in the charts of the page.

An experiment can switch off one of Kafka's safety rules, a guard, to show what the rule prevents.
The section then says which one.
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
"""Maximum number of findings of a check that are unfolded. The page shows only the summary line of
the other findings.
"""
_GUARDS = "cluster.guards"
"""Section of an experiment's settings that has the guards."""
_OFFSETS_TOPIC = "__consumer_offsets"
_MEMBER_ID = re.compile(r"((\S+-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""A member id: the client's id and a UUID, such as `consumer-a-1-0c5f9d1e-...`. The first group of
the pattern is the whole id. The second one is the short form that the page shows, here
`consumer-a-1-0c5f9d1e`.
"""
_LANES = {
    "lane-faults": ("fault_", "node_", "broker_", "run_stage"),
    "lane-groups": ("group_", "rebalance_", "generation_", "assignment_", "member_"),
    "lane-ownership": ("partitions_", "records_", "position_"),
    "lane-availability": ("offsets_", "commit_"),
}
"""Lane of a trace row, by the beginning of its kind's name. Rows of any other kind are in the lane
of the coordinators, or in that of the owners if they are about a partition of data.
"""
_LEAD = (
    "Each finding is proven by the rows of the trace below it; those above them led to it. A "
    "moment leads to its place in the lanes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """A row of the trace as text.

    The page shortens the member ids in the text, so the text is cut into `pieces`. A piece is a
    triple: plain text, the member id that follows it, and the short form of this id.
    """

    time_us: int
    node: str
    lane: str
    pieces: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFacts:
    """One finding with the rows that led to it, and the rows that prove it.

    `opened` is True if the page shows the finding unfolded. Of its proof, the page then shows the
    first `shown` rows.
    """

    finding: Finding
    opened: bool
    led_to: tuple[EvidenceRow, ...]
    proof: tuple[EvidenceRow, ...]
    shown: int = MAX_STEPS


def violations_section(run: ReportInput) -> Section | None:
    """Return every finding with its rows; None if no promise was violated."""
    broken = [check for check in run.facts.checks if check.findings_total]
    if not broken:
        return None
    parts: list[Part] = [
        Paragraph(html=render_line("promises", "guard", fact.name))
        for fact in run.facts.settings
        if fact.section == _GUARDS and fact.differs
    ]
    for check in broken:
        parts += _check(run, check)
    return Section(id="violations", title="Violated promises", lead=_LEAD, parts=tuple(parts))


def _check(run: ReportInput, check: CheckReport) -> Iterator[Part]:
    """Yield a violated promise and its findings; the first few are open."""
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
    """Return a row of the trace as text, with the member ids in it set apart."""
    # `split` returns text, id, short id, text, id, short id, ..., text. Two empty texts complete
    # the last triple.
    parts = [*_MEMBER_ID.split(describe_event(step)), "", ""]
    pieces = tuple(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))
    return EvidenceRow(time_us=step.time_us, node=step.node, lane=lane_of(step), pieces=pieces)


def lane_of(step: TraceRow) -> str:
    """Return the lane that shows a row of the trace."""
    for lane, beginnings in _LANES.items():
        if step.kind.startswith(beginnings):
            return lane
    if step.partition is not None and not step.partition.startswith(_OFFSETS_TOPIC):
        return "lane-ownership"
    return "lane-coordinators"
