"""The verdict of a run, from its checks and its journal."""

from results_schema.journal import FaultOutcome, JournalEntry
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
