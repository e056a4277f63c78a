"""The verdict of a run, from its checks and its journal.

A machine that is lost by accident says nothing about Kafka: a check whose evidence lay on it is
inconclusive, and so is one that finds a violation only after a machine was away.
"""

from collections.abc import Sequence

from msgspec import structs

from cluster.runtime import MachineEvent
from protocol.ids import NodeName
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
) -> tuple[CheckReport, ...]:
    """Return the reports without what cannot be judged because a machine was away.

    With rows missing nothing is judged: any check may need any node's. With all rows there, what
    was found before the first machine was away stands.
    """
    if not events:
        return reports
    if nodes_without_trace:
        note = f"the rows of {nodes_shown(tuple(nodes_without_trace))} were lost with their machine"
        return tuple(
            structs.replace(
                report,
                outcome=CheckOutcome.INCONCLUSIVE,
                findings=(),
                findings_total=0,
                note=note,
            )
            for report in reports
        )
    first = min(events, key=lambda event: event.from_us)
    return tuple(_before(report, first) for report in reports)


def _before(report: CheckReport, event: MachineEvent) -> CheckReport:
    """Keep of a violated check what it found before a machine was away."""
    if report.outcome is not CheckOutcome.VIOLATED:
        return report
    kept = tuple(finding for finding in report.findings if finding.time_us < event.from_us)
    if kept:
        return structs.replace(report, findings=kept, findings_total=len(kept))
    return structs.replace(
        report,
        outcome=CheckOutcome.INCONCLUSIVE,
        findings=(),
        findings_total=0,
        note=f"{event.sentence}: what happened after it is not judged",
    )
