"""The verdict of a run, from its checks and its journal.

A machine that is lost by accident says nothing about Kafka: a check whose evidence lay on it is
inconclusive, and so is one that finds a violation only after a machine was away. Every other check
is judged.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from chaos.checkers.lost_rows import needs_rows_of
from cluster.runtime import MachineEvent
from protocol.ids import NodeName
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome, JournalEntry, nodes_shown
from results_schema.results import CheckOutcome, CheckReport, Verdict


def reach_verdict(
    *,
    reports: tuple[CheckReport, ...],
    entries: tuple[JournalEntry, ...],
    unknown_because: tuple[str, ...],
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict and its reasons.

    A violation is a proof whatever else happened. Without one, anything that prevented a proof of
    the opposite makes the verdict UNKNOWN.
    """
    reasons = list(unknown_because)
    for entry in entries:
        if entry.outcome is FaultOutcome.MISSED:
            reasons.append(f"{entry.fault_id} hit nothing: {entry.error}")
        elif entry.outcome is FaultOutcome.PLANNED and not unknown_because:
            reasons.append(f"{entry.fault_id} was never injected")
    reasons += [
        f"{report.check}: {report.note}"
        for report in reports
        if report.outcome is CheckOutcome.INCONCLUSIVE and not unknown_because
    ]
    if (
        not reasons
        and reports
        and all(report.outcome is CheckOutcome.NOTHING_SEEN for report in reports)
    ):
        reasons.append("no check saw anything to judge")
    if any(report.outcome is CheckOutcome.VIOLATED for report in reports):
        return Verdict.VIOLATED, tuple(reasons)
    return (Verdict.UNKNOWN if reasons else Verdict.PASS), tuple(reasons)


def without_lost_evidence(
    reports: tuple[CheckReport, ...],
    events: Sequence[MachineEvent],
    nodes_without_trace: Sequence[NodeName],
    kinds_read: Mapping[str, frozenset[TraceKind]],
) -> tuple[CheckReport, ...]:
    """Return the reports without what cannot be judged because a machine was away.

    A check that depends on rows that were lost is inconclusive. Of any other, what was found before
    the first machine was away stands.
    Shape: `kinds_read` has the kinds of rows that each check depends on, by its name.
    """
    if not events:
        return reports
    first = min(events, key=lambda event: event.from_us)
    judged = []
    for report in reports:
        lost = needs_rows_of(nodes_without_trace, kinds_read[report.check])
        if lost:
            note = f"the rows of {nodes_shown(lost)} were lost with their machine"
            judged.append(_inconclusive(report, note))
        else:
            judged.append(_before(report, first))
    return tuple(judged)


def _inconclusive(report: CheckReport, note: str) -> CheckReport:
    return structs.replace(
        report,
        outcome=CheckOutcome.INCONCLUSIVE,
        findings=(),
        findings_total=0,
        note=note,
    )


def _before(report: CheckReport, event: MachineEvent) -> CheckReport:
    """Keep of a violated check what it found before a machine was away."""
    if report.outcome is not CheckOutcome.VIOLATED:
        return report
    kept = tuple(finding for finding in report.findings if finding.time_us < event.from_us)
    if kept:
        return structs.replace(report, findings=kept, findings_total=len(kept))
    return _inconclusive(report, f"{event.sentence}: what happened after it is not judged")
