"""The verdict of a run: PASS, VIOLATED or UNKNOWN, and the reasons for it.

The verdict follows from the reports of the checks. It also depends on the journal, which says what
has become of each planned fault: if a fault has hit nothing, the run does not prove what it should
prove.

During a run on real machines, a machine may fail although no fault was planned there. The run may
still have a verdict. But a check becomes inconclusive in two cases:

- if it needs rows of the trace that were lost with the machine;
- if it found violations only after the failure, because the failure itself may be their cause.
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

    If any check found a violation, the verdict is VIOLATED, whatever else happened in the run.
    Otherwise the verdict is PASS, or UNKNOWN if there is a reason to doubt it, such as a fault that
    hit nothing.

    - `reports`: the reports of all checks.
    - `entries`: the entries of the journal, one for each fault.
    - `unknown_because`: reasons of the run itself, such as an interruption. Such a reason also
      explains why some faults were never injected, and why some checks are inconclusive. So these
      faults and checks are then not listed as further reasons.
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
    # A run in which no check saw anything proves nothing.
    if (
        not reasons
        and reports
        and all(report.outcome is CheckOutcome.NOTHING_SEEN for report in reports)
    ):
        reasons.append("no check saw anything to judge")
    if any(report.outcome is CheckOutcome.VIOLATED for report in reports):
        # The reports explain the violation. The reasons say what else was unusual in the run.
        return Verdict.VIOLATED, tuple(reasons)
    return (Verdict.UNKNOWN if reasons else Verdict.PASS), tuple(reasons)


def without_lost_evidence(
    reports: tuple[CheckReport, ...],
    events: Sequence[MachineEvent],
    nodes_without_trace: Sequence[NodeName],
    kinds_read: Mapping[str, frozenset[TraceKind]],
) -> tuple[CheckReport, ...]:
    """Return the reports, without the conclusions that the loss of a machine makes doubtful.

    A machine may fail although no fault was planned there. Then the rows that its nodes wrote to
    the trace may be lost. A check that would have read such rows becomes inconclusive. Any other
    check keeps only the findings from before the first failure of a machine.

    - `events`: the times in which a machine was silent or lost although no fault was planned there.
    - `nodes_without_trace`: the nodes whose rows were lost with their machine.
    - `kinds_read`: for each check, by its name, the kinds of rows that the check reads.
    """
    if not events:
        return reports
    first = min(events, key=lambda event: event.from_us)
    judged = []
    for report in reports:
        # The nodes whose lost rows the check would have read
        needed_nodes = needs_rows_of(nodes_without_trace, kinds_read[report.check])
        if needed_nodes:
            note = f"the rows of {nodes_shown(needed_nodes)} were lost with their machine"
            judged.append(_inconclusive(report, note))
        else:
            judged.append(_without_later_findings(report, first))
    return tuple(judged)


def _inconclusive(report: CheckReport, note: str) -> CheckReport:
    """Return a report as inconclusive and without its findings. `note` is the reason for this."""
    return structs.replace(
        report,
        outcome=CheckOutcome.INCONCLUSIVE,
        findings=(),
        findings_total=0,
        note=note,
    )


def _without_later_findings(report: CheckReport, event: MachineEvent) -> CheckReport:
    """Return a report with only the findings from before `event`.

    If all findings of the report are from after the event, the report becomes inconclusive.
    If it had no findings, it does not change.
    """
    if report.outcome is not CheckOutcome.VIOLATED:
        return report
    earlier = tuple(finding for finding in report.findings if finding.time_us < event.from_us)
    if earlier:
        return structs.replace(report, findings=earlier, findings_total=len(earlier))
    return _inconclusive(report, f"{event.sentence}: what happened after it is not judged")
