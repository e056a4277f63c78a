"""results.json: verdict, outcome, exit code, checks and findings of a run.

A run starts a cluster, injects faults, and checks promises of Kafka. It records its events as rows
of a trace. Each check reads the trace, and reports findings: violations of the check's promise.

A verdict is about the cluster, an outcome is about the run. A failure of the tool, or an
interruption, proves nothing about Kafka. So it is recorded as an outcome, and never leads to the
verdict VIOLATED.
"""

from enum import StrEnum

import msgspec

from protocol.trace import TraceRow
from results_schema.journal import JournalEntry


class Verdict(StrEnum):
    """What the run shows about the cluster: all promises held, one was violated, or nothing."""

    PASS = "pass"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class RunOutcome(StrEnum):
    """How the run itself ended: completely, by an interruption, or by a failure of the tool."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal_error"


# Exit codes of the command. EXIT_INTERRUPTED is the code that shells report for a program that
# Ctrl-C has ended: 128 + 2, where 2 is the number of the signal SIGINT.
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
"""A key in `CheckReport.seen` of the check `fencing`. An epoch is the number of a leadership. The
count is the number of attempts that nodes made in an epoch after a newer one had begun. Reports
show it even if it is 0."""


class CheckOutcome(StrEnum):
    """The outcome of one check. Only VIOLATED says that Kafka broke a promise."""

    PASS = "pass"
    VIOLATED = "violated"
    # The trace lacks an event that the check needs. `CheckReport.note` names it.
    INCONCLUSIVE = "inconclusive"
    # The run had no case that could have been a violation.
    NOTHING_SEEN = "nothing_seen"

    @property
    def words(self) -> str:
        """The outcome as reports print it."""
        return "not tested" if self is CheckOutcome.NOTHING_SEEN else self.value


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise.

    - `summary`: one sentence.
    - `time_us`: time of the last row of `evidence`.
    - `evidence`: the rows that prove the violation, in time order.
    - `story`: `evidence` as text, a line for each row.
    - `led_to`: rows from the time before and around the evidence, in time order, which help to
      explain the violation. They show faults, elections, brokers that the controller declared dead,
      coordinators that loaded their groups, and requests that the controller never answered.
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

    - `findings`: the first findings; `findings_total`: the number of all findings.
    - `seen`: kind of case -> number of cases of this kind that the check judged. If the name of the
      kind ends in `_us`, the value is a length of time instead.
    - `measured`: figures without influence on the outcome, such as times in which a partition had
      two owners. A name ends with the unit of its figure; a figure without a unit is a count.
    - `excused`: name of an excuse -> number of cases in which the promise did not hold, but the
      excuse permitted this. `note` describes these cases.
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
    """The content of results.json. Units: microseconds of the run's clock.

    - `reasons`: reasons for an unknown verdict or a failure of the tool.
    - `exit_code`: follows from outcome and verdict. The command exits with this code, with one
      exception: if a closed pipe interrupts the run, `exit_code` is 130, but the command exits with
      141.
    - `faults`: the journal, which has an entry for each fault of the plan.
    - `steady_at_us`: when the whole cluster was up and quiet for the first time; None: never.
    - `rows_seen`: number of trace rows that the checks got.
    - `time_scale`: how many times as fast as real time the run's clock was. Work of the hardware
      takes this many times as long on the run's clock as in real time.
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
