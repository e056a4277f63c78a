"""The four figures of the report's first screen, such as `8.2 s without an active coordinator`.

`_candidates` yields all figures of a run, the most important first, and the screen shows the first
four. For example, if the run broke a promise of Kafka's, the first figure is the number of
violations.

A figure about times is always the longest time. For example, the analysis measures the commit gap
of each member after each fault: the time in which no commit of the member was acknowledged. The
figure is the longest commit gap of all members after all faults.

A figure is called disturbed if a machine of the Ray cluster was lost or silent by accident while
the figure was measured. The note of the figure then says so.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.answers import check_name
from pipeline.summary.figures import (
    FaultSummary,
    Worst,
    duration_text,
    find_worst,
    longest_coordinators,
    longest_owners,
    rebalances_in,
)
from pipeline.summary.outcomes import Coordinators, listed
from pipeline.summary.story import counted
from results_schema.journal import FaultOutcome
from results_schema.results import CheckOutcome

Tone = Literal["good", "bad", "warn", "plain"]
NUMBER = 4
"""The number of figures on the first screen."""
RUN_LENGTH = "of the run's clock"
"""Label of the figure for the run's length."""
_LACKED = {"member": "an acknowledged commit", "partition": "a member that consumes them"}
"""What a member or a partition lacks in a gap. These words are for the figure of gaps that lasted
until the run ended: `3 of 5 members, still without an acknowledged commit`.
"""
_DISTURBED = "a machine was away by accident then"
"""The note of a disturbed figure, which proves nothing about Kafka. A notice on the same screen
explains the accident."""
_WARN_FROM_US = 1_000_000
"""Shortest gap that has a warning colour: 1 s. Even without a fault, shorter gaps are usual between
two commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the first screen."""

    value: str
    """The number, such as "8.2"."""
    unit: str
    """The text that follows the number, such as "s" or "of 12"."""
    label: str
    """What the number means, such as "longest time without an acknowledged commit"."""
    note: str = ""
    """A text that helps to judge the number, such as "median 1.1 s of 12 members"."""
    tone: Tone = "plain"
    """The colour of the figure."""


def four_figures(run: ReportInput) -> tuple[Figure, ...]:
    """Return the NUMBER most important figures of this run."""
    # The status "failed" means that our own software failed, and not Kafka. Times of such a run
    # would say nothing about Kafka.
    tool_failed = run.facts.status == "failed"
    candidates = _counts(run) if tool_failed else _candidates(run)
    return tuple(islice(candidates, NUMBER))


def _candidates(run: ReportInput) -> Iterator[Figure]:
    """Yield all figures of the run, the most important first."""
    yield from _broken_promises(run)
    yield from _faults_that_hit(run)
    yield from _two_owners(run)
    # If the old coordinator answered requests, the figure of two coordinators comes before the
    # gaps. If it answered none, it misled no member. Then the gaps matter more, and come first.
    pair = longest_coordinators(run.summary)
    old_answered = pair is not None and bool(pair.older.heartbeats or pair.older.commits)
    if pair is not None and old_answered:
        yield _two_coordinators(pair)
    yield from _gaps(run)
    if pair is not None and not old_answered:
        yield _two_coordinators(pair)
    if run.summary.faults:
        yield _rebalances(run)
        yield from _processed_again(run)
        yield from _kept_ids(run)
    yield from _counts(run)


def _broken_promises(run: ReportInput) -> Iterator[Figure]:
    """Yield `3 findings against 2 promises`; nothing if every promise was kept."""
    violated = [check for check in run.facts.checks if check.outcome is CheckOutcome.VIOLATED]
    if violated:
        findings = sum(check.findings_total for check in violated)
        yield Figure(
            value=f"{findings:,}",
            unit="finding" if findings == 1 else "findings",
            label=f"against {counted(len(violated), 'promise')}",
            note=listed([check_name(check) for check in violated]),
            tone="bad",
        )


def _faults_that_hit(run: ReportInput) -> Iterator[Figure]:
    """Yield `2 of 3 faults hit`; nothing if all faults hit a node.

    The reader must know if a fault hit nothing, because the run then did not test all of its plan.
    """
    outcomes = [fault.outcome for fault in run.facts.faults]
    hits = outcomes.count(FaultOutcome.HIT)
    missed = outcomes.count(FaultOutcome.MISSED)
    if hits < len(outcomes):
        counts = {"hit nothing": missed, "not injected": len(outcomes) - hits - missed}
        yield Figure(
            value=f"{hits:,}",
            unit=f"of {len(outcomes):,}",
            label="faults hit",
            note=", ".join(f"{count:,} {text}" for text, count in counts.items() if count),
            tone="warn",
        )


def _two_owners(run: ReportInput) -> Iterator[Figure]:
    """Yield the longest time with two owners; nothing if there was no such time."""
    owners = longest_owners(run.summary)
    if owners is not None:
        yield _duration(
            owners.longest_us,
            label="two owners at once",
            note=f"of {counted(owners.partitions, 'partition')} of {owners.group}",
            tone="warn",
            disturbed=owners.disturbed,
        )


def _two_coordinators(pair: Coordinators) -> Figure:
    """Return the figure of a time with two coordinators."""
    return _duration(
        pair.to_us - pair.from_us,
        label="two coordinators at once",
        note=f"{pair.older.broker} and {pair.newer.broker}, of {listed(pair.groups)}",
        tone="warn",
        disturbed=pair.disturbed,
    )


def _gaps(run: ReportInput) -> Iterator[Figure]:
    """Yield the longest gap of a member or partition, then the longest gap of a group.

    The gap of a group is the time in which no coordinator served the group.
    """
    worst_commit_gap = find_worst(run.summary, "commit gap")
    worst_processing_gap = find_worst(run.summary, "processing gap")
    # A fault that moves a coordinator interrupts commits. So if a fault of the run did this, the
    # commit gap is shown. Otherwise the processing gap is shown, because all other faults interrupt
    # the processing.
    any_moved = any(fault.partitions_moved for fault in run.summary.faults)
    if worst_commit_gap is not None and (any_moved or worst_processing_gap is None):
        label = "longest time without an acknowledged commit"
        yield _longest_gap(worst_commit_gap, label, "member", run)
    elif worst_processing_gap is not None:
        label = "longest time a partition was not consumed"
        yield _longest_gap(worst_processing_gap, label, "partition", run)

    # If all groups kept their coordinators, the longest time is 0, and there is no figure.
    without_coordinator = find_worst(run.summary, "no coordinator")
    if without_coordinator is not None and without_coordinator.longest_us > 0:
        distribution = without_coordinator.distribution
        yield _duration(
            without_coordinator.longest_us,
            bound_us=distribution.bound_us,
            label="without an active coordinator",
            note=_longest_of_groups(distribution.samples, run),
            disturbed=distribution.disturbed,
        )


def _longest_of_groups(number: int, run: ReportInput) -> str:
    """Return `group billing`, or `longest of 3 groups` if the run has several groups."""
    groups = [row["group"] for row in run.tables.rows("groups")]
    return f"group {groups[0]}" if len(groups) == 1 else f"longest of {counted(number, 'group')}"


def _longest_gap(worst: Worst, label: str, subject: str, run: ReportInput) -> Figure:
    """Return the figure of the longest gap, with a note about the other gaps.

    If all gaps lasted until the end of the run, no length is known. Then the figure is the number
    of subjects (members or partitions) that still have a gap: `3 of 5 members`.
    """
    gaps = worst.distribution
    gaps_without_end = gaps.missing
    subjects = counted(gaps.samples + gaps_without_end, subject)
    if not gaps.samples:
        since_us = run.end_us - worst.fault.injected_us
        return Figure(
            value=f"{gaps_without_end:,}",
            unit=f"of {subjects}",
            label=f"still without {_LACKED[subject]}",
            note=_with_warning(
                f"at the end, {duration_text(since_us)} after the fault", gaps.disturbed
            ),
            tone="warn",
        )

    # The note is, for example, `median 1.1 s of 12 members; 2 not over when the run ended`.
    note = f"of {subjects}"
    median_us = gaps.percentile(50)
    if median_us is not None:
        note = f"median {duration_text(median_us)} {note}"
    if gaps_without_end:
        note += f"; {gaps_without_end} not over {_at_the_end(run)}"
    return _duration(
        worst.longest_us,
        bound_us=gaps.bound_us,
        label=label,
        note=note,
        tone="warn" if worst.longest_us >= _WARN_FROM_US else "good",
        disturbed=gaps.disturbed,
    )


def _rebalances(run: ReportInput) -> Figure:
    """Return the figure of the number of rebalances after the faults of the run."""
    faults = run.summary.faults
    note = "after the fault" if len(faults) == 1 else "after the faults"
    if run.cut_off:
        note += " until the run was cut off"
    reasons = _reasons(faults)
    if reasons:
        note += f"; {reasons}"
    disturbed = any(rebalances.disturbed for fault in faults for rebalances in fault.rebalances)
    number = rebalances_in(run.summary)
    return Figure(
        value=f"{number:,}",
        unit="",
        label="rebalance" if number == 1 else "rebalances",
        note=_with_warning(note, disturbed),
        tone="plain" if number or run.cut_off else "good",
    )


def _processed_again(run: ReportInput) -> Iterator[Figure]:
    """Yield `12 times a record was processed again`; nothing if no record was."""
    again = sum(group.repeated for group in run.summary.processing)
    if again:
        processings = sum(group.records for group in run.summary.processing)
        felt = run.summary.felt
        yield Figure(
            value=f"{again:,}",
            unit="time" if again == 1 else "times",
            label="a record was processed again",
            note=_with_warning(
                f"{processings:,} processings of {processings - again:,} distinct records",
                felt is not None and felt.disturbed,
            ),
            tone="warn",
        )


def _reasons(faults: Sequence[FaultSummary]) -> str:
    """Return the reasons for rebalances in the order of time. Several reasons have their numbers.

    For example, `reason: join` or `reasons: session expiry (1), join (2)`.
    """
    counts: Counter[str] = Counter()
    all_rebalances = [rebalances for fault in faults for rebalances in fault.rebalances]
    for rebalances in sorted(all_rebalances, key=lambda rebalances: rebalances.first_us):
        counts[rebalances.reason] += rebalances.count
    if not counts:
        return ""
    if len(counts) == 1:
        (only_reason,) = counts
        return f"reason: {only_reason}"
    return "reasons: " + ", ".join(f"{reason} ({count:,})" for reason, count in counts.items())


def _kept_ids(run: ReportInput) -> Iterator[Figure]:
    """Yield `3 of 4 members kept their member id`; nothing if no member was concerned.

    If there was no rebalance, the figure is `3 of 4 members kept their member id and generation`.
    After a rebalance, the generation says nothing, because a rebalance changes the generation of
    all members.
    """
    faults = [fault for fault in run.summary.faults if fault.members]
    if not faults:
        return
    # If there are several faults, each of the two numbers is the worst over all faults: the most
    # members that a fault concerned, and the fewest members that kept their ids. The two numbers
    # can belong to different faults.
    members = max(fault.members for fault in faults)
    if any(fault.rebalances for fault in faults):
        label = "members kept their member id"
        members_kept = min(fault.members_kept_id for fault in faults)
    else:
        label = "members kept their member id and generation"
        members_kept = min(fault.members_kept for fault in faults)
    yield Figure(
        value=f"{members_kept:,}",
        unit=f"of {members:,}",
        label=label,
        tone="good" if members_kept == members and not run.cut_off else "plain",
    )


def _counts(run: ReportInput) -> Iterator[Figure]:
    """Yield figures that need no fault: checks, commits, records, and the run's length."""
    results = run.facts.results_or_empty
    outcomes = [check.outcome for check in results.checks]
    if outcomes:
        label = "checks passed"
        not_tested = outcomes.count(CheckOutcome.NOTHING_SEEN)
        if not_tested:
            label += f", {not_tested} not put to the test"
        yield Figure(
            value=f"{outcomes.count(CheckOutcome.PASS)}", unit=f"of {len(outcomes)}", label=label
        )
    if results.commits_acknowledged:
        yield Figure(
            value=f"{results.commits_acknowledged:,}", unit="commits", label="acknowledged"
        )
    if results.records_produced:
        yield Figure(
            value=f"{results.records_produced:,}",
            unit="records",
            label="acknowledged to producers",
            note=f"{results.records_consumed:,} consumed",
        )
    yield _duration(run.end_us, label=RUN_LENGTH)
    yield Figure(value=f"{run.summary.events:,}", unit="events", label="in the trace")
    yield Figure(value=f"{len(run.summary.faults)}", unit="", label="faults that hit")


def _at_the_end(run: ReportInput) -> str:
    """Return `when the run ended`, or `when the run was cut off`."""
    return f"when the run {'was cut off' if run.cut_off else 'ended'}"


def _duration(
    value_us: int,
    *,
    label: str,
    note: str = "",
    tone: Tone = "plain",
    bound_us: int = 0,
    disturbed: bool = False,
) -> Figure:
    """Return a figure of a duration.

    `bound_us` is the error of the clocks. A duration that is shorter than this error is not
    certain. With an error of 5 ms, for example, the text of such a duration is `< 5 ms`.
    """
    # `1.25 s` is the value `1.25` and the unit `s`.
    value, _, unit = duration_text(value_us, bound_us=bound_us).rpartition(" ")
    return Figure(
        value=value, unit=unit, label=label, note=_with_warning(note, disturbed), tone=tone
    )


def _with_warning(note: str, disturbed: bool) -> str:
    """Return the note of a figure, with a warning if the figure is disturbed."""
    if not disturbed:
        return note
    return f"{note}; {_DISTURBED}" if note else _DISTURBED
