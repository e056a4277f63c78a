"""results.json: what a run proved, by verdict, outcome, exit code, checks and findings.

A verdict is about the cluster; an outcome is about the run. A tool that failed, or a run that was
interrupted, proves nothing: neither may pass for a finding about Kafka.
"""

from enum import StrEnum

import msgspec

from protocol.trace import TraceRow
from results_schema.journal import JournalEntry


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


OLD_EPOCH_ATTEMPTS = "attempts_by_an_older_epoch_after_a_newer_one_was_elected"
"""What the check `fencing` counts in `seen`; readers say it also where it is 0."""


class CheckOutcome(StrEnum):
    """What one checker has to say. Only VIOLATED is a finding about Kafka's promises."""

    PASS = "pass"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"  # something that it needs did not happen; the note says what
    NOTHING_SEEN = "nothing_seen"  # not put to the test: nothing came that could have broken it

    @property
    def words(self) -> str:
        """The outcome for people."""
        return "not tested" if self is CheckOutcome.NOTHING_SEEN else self.value


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise, with the rows that prove it, in time order, and as a story.

    Shape: `led_to` are rows of the time before and around it that tell why it could happen (faults,
    elections, fencing, loads, requests that the controller never answered), in time order.
    """

    check: str
    summary: str
    time_us: int
    group: str | None = None
    partition: str | None = None
    story: tuple[str, ...] = ()
    evidence: tuple[TraceRow, ...] = ()
    led_to: tuple[TraceRow, ...] = ()


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one checker found, and how much it saw.

    Shape: `seen` counts what it judged, by its name. `measured` has figures that are no verdict
    (how long two members owned one partition, how often a record was processed again); its names
    end with their unit, those without one are counts. `excused` counts the cases in which the
    promise did not hold, as it may, by the excuse; `note` says which cases.
    """

    check: str
    outcome: CheckOutcome
    findings: tuple[Finding, ...] = ()
    findings_total: int = 0
    seen: dict[str, int] = {}
    note: str = ""
    measured: dict[str, int] = {}
    excused: dict[str, int] = {}


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """results.json: the verdict, why, and what each check saw.

    Units: times are microseconds of the run's clock. `reasons` say why a verdict is unknown or the
    tool failed; `steady_at_us` is None if the steady state was never reached. The run's clock was
    `time_scale` times faster than a real one: what hardware takes looks as much longer.
    `exit_code` is the run's own, by outcome and verdict: 130 of one that a closed pipe interrupted,
    though the command whose output it was ends with 141.
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


def exit_code(outcome: RunOutcome, verdict: Verdict) -> int:
    """Return the exit code of a run."""
    match outcome:
        case RunOutcome.COMPLETED:
            return _EXIT_OF_VERDICT[verdict]
        case RunOutcome.INTERRUPTED:
            return EXIT_INTERRUPTED
        case RunOutcome.INTERNAL_ERROR:
            return EXIT_INTERNAL_ERROR
