"""The verdict of a run: PASS, VIOLATED or UNKNOWN, and the reasons for it.

It follows from the reports of the checks, and from the journal: if a fault of the plan has hit
nothing, the run does not prove what it should prove.

If a real machine is lost by accident during a run, the run may still have a verdict. Then two kinds
of checks become inconclusive:

- those that need rows which were lost with the machine;
- those that found violations only after the loss, because the loss itself may be the cause.
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

    A violation is a proof, whatever else happened in the run. Without a violation the verdict is
    PASS, unless there is a reason to doubt it, such as a fault that hit nothing; then it is
    UNKNOWN.

    `unknown_because` has reasons of the run itself, such as an interruption. An interruption also
    explains why faults were never injected, and why checks are inconclusive. So if there is such a
    reason, these faults and checks are not listed as further reasons.
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
        # The reports explain the violation. The reasons say what else was doubtful in the run.
        return Verdict.VIOLATED, tuple(reasons)
    return (Verdict.UNKNOWN if reasons else Verdict.PASS), tuple(reasons)


def without_lost_evidence(
    reports: tuple[CheckReport, ...],
    events: Sequence[MachineEvent],
    nodes_without_trace: Sequence[NodeName],
    kinds_read: Mapping[str, frozenset[TraceKind]],
) -> tuple[CheckReport, ...]:
    """Return the reports, without the conclusions that the loss of a machine makes doubtful.

    A machine can fail by itself, without a planned fault. Then the rows that its nodes wrote to the
    trace may be lost. A check that would have read such rows becomes inconclusive. Any other check
    keeps only its findings from before the first event.

    - `events`: the times in which a machine was silent or lost although no fault was planned there.
    - `nodes_without_trace`: the nodes whose rows were lost with their machine.
    - `kinds_read`: the name of each check -> the kinds of rows that it reads.
    """
    if not events:
        return reports
    first = min(events, key=lambda event: event.from_us)
    judged = []
    for report in reports:
        # Those of the nodes whose lost rows the check would have read.
        needed_nodes = needs_rows_of(nodes_without_trace, kinds_read[report.check])
        if needed_nodes:
            note = f"the rows of {nodes_shown(needed_nodes)} were lost with their machine"
            judged.append(_inconclusive(report, note))
        else:
            judged.append(_without_later_findings(report, first))
    return tuple(judged)


def _inconclusive(report: CheckReport, note: str) -> CheckReport:
    """Return a report without its findings and with an inconclusive outcome, for reason `note`."""
    return structs.replace(
        report,
        outcome=CheckOutcome.INCONCLUSIVE,
        findings=(),
        findings_total=0,
        note=note,
    )


def _without_later_findings(report: CheckReport, event: MachineEvent) -> CheckReport:
    """Return a violated report with only its findings from before `event`.

    Without such findings the report becomes inconclusive. A report that is not violated stays as it
    is.
    """
    if report.outcome is not CheckOutcome.VIOLATED:
        return report
    earlier = tuple(finding for finding in report.findings if finding.time_us < event.from_us)
    if earlier:
        return structs.replace(report, findings=earlier, findings_total=len(earlier))
    return _inconclusive(report, f"{event.sentence}: what happened after it is not judged")
