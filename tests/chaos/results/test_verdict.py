"""The verdict of a run, from its checks and faults, and its exit code.

The verdict is unknown if the run proves nothing. There may be three reasons for this:

- a check had nothing to judge (NOTHING_SEEN), or could not decide a case (INCONCLUSIVE);
- a fault was never injected (it is still PLANNED), or it hit nothing (MISSED);
- the run itself failed in some way, such as "no steady state" (`unknown_because`).
"""

import pytest

from chaos.results.verdict import reach_verdict
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.results import CheckOutcome, CheckReport, RunOutcome, Verdict, exit_code


def report(outcome: CheckOutcome, note: str = "") -> CheckReport:
    """Return the report of one check. Its name, `fencing`, does not matter."""
    return CheckReport(check="fencing", outcome=outcome, note=note)


def fault(outcome: FaultOutcome) -> JournalEntry:
    """Return the entry of a crash in the journal. The `error` matters only if the crash missed."""
    return JournalEntry(
        fault_id="crash-0",
        fault="crash",
        target="broker(0)",
        duration_us=None,
        outcome=outcome,
        error="broker 0 is not alive",
    )


@pytest.mark.parametrize(
    ("check_outcome", "fault_outcome", "unknown_because", "verdict"),
    [
        (CheckOutcome.PASS, FaultOutcome.HIT, (), Verdict.PASS),
        (CheckOutcome.NOTHING_SEEN, FaultOutcome.HIT, (), Verdict.UNKNOWN),
        (CheckOutcome.VIOLATED, FaultOutcome.HIT, (), Verdict.VIOLATED),
        (CheckOutcome.PASS, FaultOutcome.MISSED, (), Verdict.UNKNOWN),
        (CheckOutcome.PASS, FaultOutcome.PLANNED, (), Verdict.UNKNOWN),
        (CheckOutcome.INCONCLUSIVE, FaultOutcome.HIT, (), Verdict.UNKNOWN),
        (CheckOutcome.PASS, FaultOutcome.HIT, ("no steady state",), Verdict.UNKNOWN),
        (CheckOutcome.VIOLATED, FaultOutcome.MISSED, ("time limit",), Verdict.VIOLATED),
    ],
)
def test_verdict_of_checks_faults_and_reasons(
    check_outcome: CheckOutcome,
    fault_outcome: FaultOutcome,
    unknown_because: tuple[str, ...],
    verdict: Verdict,
) -> None:
    """A violation is always proven. Without a violation, any doubt makes the verdict unknown."""
    reached_verdict, reasons = reach_verdict(
        reports=(report(check_outcome, "why"),),
        entries=(fault(fault_outcome),),
        unknown_because=unknown_because,
    )

    assert reached_verdict is verdict
    # An unknown verdict has reasons. Any other verdict has only the reasons in `unknown_because`.
    has_reasons = verdict is Verdict.UNKNOWN or bool(unknown_because)
    assert bool(reasons) == has_reasons


@pytest.mark.parametrize(
    ("outcome", "verdict", "code"),
    [
        (RunOutcome.COMPLETED, Verdict.PASS, 0),
        (RunOutcome.COMPLETED, Verdict.VIOLATED, 1),
        (RunOutcome.COMPLETED, Verdict.UNKNOWN, 2),
        # The exit code of a program that Ctrl-C has ended.
        (RunOutcome.INTERRUPTED, Verdict.VIOLATED, 130),
        (RunOutcome.INTERNAL_ERROR, Verdict.VIOLATED, 255),
    ],
)
def test_exit_code_of_every_ending(outcome: RunOutcome, verdict: Verdict, code: int) -> None:
    """The exit code of a failed tool or an interrupted run does not depend on the verdict."""
    assert exit_code(outcome, verdict) == code
