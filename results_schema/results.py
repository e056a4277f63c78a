"""results.json: verdict, outcome, exit code, checks and findings of a run.

A run starts a cluster, injects faults, and checks whether the cluster keeps Kafka's promises. It
records all events in a trace. Each check reads the trace, and reports where a promise was broken.
Such a report is called a finding.

A run has a verdict and an outcome. The verdict is about the cluster, and the outcome is about the
run. A failure of the tool, or an interruption by a user, proves nothing about Kafka. So it is an
outcome, and never leads to the verdict VIOLATED.
"""

from enum import StrEnum

import msgspec

from protocol.trace import TraceRow
from results_schema.journal import JournalEntry


class Verdict(StrEnum):
    """What a run shows: the cluster kept all promises, or broke a promise, or neither is known."""

    PASS = "pass"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class RunOutcome(StrEnum):
    """How the run itself ended: completely, by an interruption, or by a failure of the tool."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal_error"


# Exit codes of the command. EXIT_INTERRUPTED is 128 + 2, which shells report for a program that
# Ctrl-C has ended (2 is the number of the signal SIGINT).
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
"""A key in `CheckReport.seen` of the check `fencing`. Its value is the number of appends that an
old leader began, or still waited for, after a newer leader epoch had begun. Reports show this
number even if it is 0."""


class CheckOutcome(StrEnum):
    """The outcome of one check. Only VIOLATED says that Kafka broke a promise."""

    PASS = "pass"
    VIOLATED = "violated"
    # An event that the check needs is missing in the trace. `CheckReport.note` says which.
    INCONCLUSIVE = "inconclusive"
    # Nothing happened in the run by which the promise could have been broken.
    NOTHING_SEEN = "nothing_seen"

    @property
    def words(self) -> str:
        """The outcome as reports print it."""
        return "not tested" if self is CheckOutcome.NOTHING_SEEN else self.value


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise.

    - `summary`: one sentence that says what is wrong.
    - `evidence`: the rows of the trace that prove the finding, in time order.
    - `time_us`: time of the last of these rows.
    - `story`: the evidence as text, a line for each row.
    - `led_to`: further rows from about the same time, in time order, which help to explain what
      happened: faults, elections, brokers that the controller declared dead, coordinators that
      loaded their groups, and requests that the controller never answered.
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
    """The report of one check.

    - `findings`: the first findings. `findings_total` is the number of all findings.
    - `seen`: the cases that the check had to judge: kind of case -> number of cases. If the name of
      the kind ends in `_us`, the value is a length of time instead.
    - `measured`: figures that do not decide the outcome, such as the time for which a partition had
      two owners. The name of a figure ends with its unit. A figure without a unit is a count.
    - `excused`: cases in which the promise did not hold, but for a reason that excuses this: name
      of the reason -> number of cases. `note` describes these cases.
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
    """The content of results.json. Times are microseconds of the run's clock.

    - `reasons`: why the verdict is unknown, or why the tool failed.
    - `exit_code`: the exit code of the command, which follows from outcome and verdict. There is
      one exception: if a closed pipe interrupts the run, this field is 130, but the command exits
      with 141.
    - `faults`: the journal, which has an entry for each fault of the plan.
    - `steady_at_us`: when the whole cluster was up and quiet for the first time, None if it never
      was.
    - `rows_seen`: number of rows of the trace that the checks got.
    - `time_scale`: how many times as fast as real time the run's clock was. For example, if it is
      10, a write to the disk that takes 1 ms takes 10 ms on the run's clock.
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
