"""What a run proved: verdict, outcome and exit code, and the content of results.json.

A verdict is about the cluster; an outcome is about the run. A tool that failed, or a run that was
interrupted, proves nothing: neither may pass for a finding about Kafka.
"""

from enum import StrEnum

import msgspec

from chaos.checkers.base import CheckOutcome, CheckReport, Finding
from chaos.run.journal import FaultOutcome, JournalEntry


class Verdict(StrEnum):
    """What the run says about the cluster."""

    PASS = "pass"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class RunOutcome(StrEnum):
    """How the run itself ended."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal_error"


EXIT_PASS = 0
EXIT_VIOLATED = 1
EXIT_UNKNOWN = 2
EXIT_INTERRUPTED = 130
EXIT_BAD_ARGUMENTS = 254
EXIT_INTERNAL_ERROR = 255

_EXIT_OF_VERDICT = {
    Verdict.PASS: EXIT_PASS,
    Verdict.VIOLATED: EXIT_VIOLATED,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
}


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """results.json: the verdict, why, and what each check saw.

    Units: times are microseconds of the run's clock. `reasons` say why a verdict is unknown or the
    tool failed; `steady_at_us` is None if the steady state was never reached. The run's clock was
    `time_scale` times faster than a real one: what hardware takes looks as much longer.
    """

    outcome: RunOutcome
    verdict: Verdict
    exit_code: int
    reasons: tuple[str, ...] = ()
    checks: tuple[CheckReport, ...] = ()
    faults: tuple[JournalEntry, ...] = ()
    steady_at_us: int | None = None
    healed_at_us: int | None = None
    ended_at_us: int = 0
    records_produced: int = 0
    records_consumed: int = 0
    commits_acknowledged: int = 0
    rows_seen: int = 0
    time_scale: float = 1.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding of every check."""
        return tuple(finding for check in self.checks for finding in check.findings)


def judge(
    *,
    reports: tuple[CheckReport, ...],
    entries: tuple[JournalEntry, ...],
    unknown_because: tuple[str, ...],
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict and its reasons.

    A violation is proven whatever else happened; without one, anything that kept the run from
    proving its point makes it UNKNOWN.
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


def exit_code(outcome: RunOutcome, verdict: Verdict) -> int:
    """Return the exit code of DESIGN 10."""
    match outcome:
        case RunOutcome.COMPLETED:
            return _EXIT_OF_VERDICT[verdict]
        case RunOutcome.INTERRUPTED:
            return EXIT_INTERRUPTED
        case RunOutcome.INTERNAL_ERROR:
            return EXIT_INTERNAL_ERROR
