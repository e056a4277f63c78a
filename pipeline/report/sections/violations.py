"""The section `violations`: the evidence of each violated promise as a story with links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.report.charts.chart import Paragraph, Part, Section
from pipeline.report.rendering import said
from pipeline.report.report_input import ReportInput
from pipeline.report.sections.checks import check_facts
from protocol.trace import TraceRow
from results_schema.evidence_text import describe_event
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
    "Each finding is proven by the rows of the trace below it; those above them led to it. A "
    "moment leads to its place in the lanes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """A row of the trace. `pieces` are its text: plain text, a member id, what is shown of that."""

    time_us: int
    node: str
    lane: str
    pieces: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFacts:
    """One finding with the rows that led to it and those that prove it, `shown` of them at once."""

    finding: Finding
    opened: bool
    led_to: tuple[EvidenceRow, ...]
    proof: tuple[EvidenceRow, ...]
    shown: int = MAX_STEPS


def violations_section(run: ReportInput) -> Section | None:
    """Return every finding with its story; None: no promise was violated."""
    broken = [check for check in run.facts.checks if check.findings_total]
    if not broken:
        return None
    parts: list[Part] = [
        Paragraph(html=said("promises", "guard", fact.name))
        for fact in run.facts.settings
        if fact.section == _GUARDS and fact.differs
    ]
    for check in broken:
        parts += _check(run, check)
    return Section(id="violations", title="Violated promises", lead=_LEAD, parts=tuple(parts))


def _check(run: ReportInput, check: CheckReport) -> Iterator[Part]:
    yield Paragraph(html=said("promises", "violated", check_facts(run, check)))
    for place, finding in enumerate(check.findings):
        facts = FindingFacts(
            finding=finding,
            opened=place < MAX_OPEN,
            led_to=tuple(_row(step) for step in finding.led_to),
            proof=tuple(_row(step) for step in finding.evidence),
        )
        yield Paragraph(html=said("promises", "finding", facts))
    hidden = check.findings_total - len(check.findings)
    if hidden > 0:
        yield Paragraph(html=said("promises", "hidden", hidden))


def _row(step: TraceRow) -> EvidenceRow:
    parts = [
        *_MEMBER_ID.split(describe_event(step)),
        "",
        "",
    ]  # text, id, kept part of it, text, ...
    pieces = tuple(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))
    return EvidenceRow(time_us=step.time_us, node=step.node, lane=lane_of(step), pieces=pieces)


def lane_of(step: TraceRow) -> str:
    """Return the lane in which a row of the trace is seen."""
    for lane, beginnings in _LANES.items():
        if step.kind.startswith(beginnings):
            return lane
    if step.partition is not None and not step.partition.startswith(_OFFSETS_TOPIC):
        return "lane-ownership"
    return "lane-coordinators"
