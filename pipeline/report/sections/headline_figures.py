"""The four figures of the report's first screen, such as `8.2 s without an active coordinator`.

Which figures are shown depends on what happened in the run. `_candidates` yields all figures of the
run, the most important first, and the screen shows the first four. Broken promises come first.

Many times are measured after each fault and for each member, such as the time until a member had a
commit acknowledged again (its commit gap). The figure is the longest of all these times.

A figure is disturbed if a machine of the Ray cluster was lost or silent by accident while it was
measured. Its note then says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pipeline.report.report_input import ReportInput
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
"""What a member or a partition still lacked if its gap lasted until the run ended. The figure then
says `3 of 5 members, still without an acknowledged commit`.
"""
_DISTURBED = "a machine was away by accident then"
"""The note of a figure that proves nothing about Kafka, because the accident may be its cause. A
notice on the same screen explains the accident."""
_WARN_FROM_US = 1_000_000
"""A gap of this length or more has a warning colour, as it is longer than a commit interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the first screen.

    For example: value "8.2", unit "s", label "longest time without an acknowledged commit". The
    note helps to judge the number: "median 1.1 s of 12 members". The tone is its colour.
    """

    value: str
    unit: str
    label: str
    note: str = ""
    tone: Tone = "plain"


def four_figures(run: ReportInput) -> tuple[Figure, ...]:
    """Return the NUMBER most important figures of this run; broken promises come first.

    If the tool failed, the figures are only counts, because times would say nothing about Kafka.
    """
    # "failed": coordlab itself, the tool, failed.
    candidates = _counts(run) if run.facts.status == "failed" else _candidates(run)
    return tuple(islice(candidates, NUMBER))


def _candidates(run: ReportInput) -> Iterator[Figure]:
    """Yield all figures of the run, the most important first."""
    yield from _broken_promises(run)
    yield from _faults_that_hit(run)
    yield from _owners(run)
    # The two coordinators that served the same groups at once for the longest time. If the old one
    # answered no request, it misled no member, so the gaps matter more and come first.
    pair = longest_coordinators(run.summary)
    old_one_answered = pair is not None and bool(pair.older.heartbeats or pair.older.commits)
    if pair is not None and old_one_answered:
        yield _coordinators(pair)
    yield from _gaps(run)
    if pair is not None and not old_one_answered:
        yield _coordinators(pair)
    if run.summary.faults:
        yield _rebalances(run)
        yield from _processed_again(run)
        yield from _kept_ids(run)
    yield from _counts(run)


def _broken_promises(run: ReportInput) -> Iterator[Figure]:
    """Yield the number of violations that checks found; nothing if every promise was kept."""
    broken = [check for check in run.facts.checks if check.outcome is CheckOutcome.VIOLATED]
    if broken:
        findings = sum(check.findings_total for check in broken)
        yield Figure(
            value=f"{findings:,}",
            unit="finding" if findings == 1 else "findings",
            label=f"against {counted(len(broken), 'promise')}",
            note=listed([check.check.replace("_", " ") for check in broken]),
            tone="bad",
        )


def _faults_that_hit(run: ReportInput) -> Iterator[Figure]:
    """Yield the number of faults that hit a node, unless all faults did.

    A run in which a fault hit nothing did not test everything in its plan.
    """
    outcomes = [fault.outcome for fault in run.facts.faults]
    hits, missed = outcomes.count(FaultOutcome.HIT), outcomes.count(FaultOutcome.MISSED)
    others = len(outcomes) - hits - missed
    if hits < len(outcomes):
        counts = {"hit nothing": missed, "not injected": others}
        yield Figure(
            value=f"{hits:,}",
            unit=f"of {len(outcomes):,}",
            label="faults hit",
            note=", ".join(f"{count:,} {text}" for text, count in counts.items() if count),
            tone="warn",
        )


def _owners(run: ReportInput) -> Iterator[Figure]:
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


def _coordinators(pair: Coordinators) -> Figure:
    """Return the figure of a time with two coordinators."""
    return _duration(
        pair.to_us - pair.from_us,
        label="two coordinators at once",
        note=f"{pair.older.broker} and {pair.newer.broker}, of {listed(pair.groups)}",
        tone="warn",
        disturbed=pair.disturbed,
    )


def _gaps(run: ReportInput) -> Iterator[Figure]:
    """Yield the longest gap of a member or partition, then the longest one of a group.

    A group's gap is the time in which no coordinator served it.
    """
    # Tuples of the measure, the figure's label, and the kind of subject.
    commits = ("commit gap", "longest time without an acknowledged commit", "member")
    processing = ("processing gap", "longest time a partition was not consumed", "partition")
    # A fault that moves a coordinator interrupts commits. Other faults interrupt the processing.
    moved = any(fault.partitions_moved for fault in run.summary.faults)
    by_importance = (commits, processing) if moved else (processing, commits)
    for measure, label, subject in by_importance:
        worst = find_worst(run.summary, measure)
        if worst is not None:
            yield _gap(worst, label, subject, run)
            # One gap is enough. The second measure is needed only if the first one has no values.
            break
    # A group that kept its coordinator has a time of 0 without a coordinator.
    without_coordinator = find_worst(run.summary, "no coordinator")
    if without_coordinator is not None and without_coordinator.longest_us:
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


def _gap(worst: Worst, label: str, subject: str, run: ReportInput) -> Figure:
    """Return the figure of the worst gap.

    If no gap ended before the run did, no length is known. Then the figure is the number of
    subjects that still have a gap.
    """
    # Subjects whose gap did not end have no length. They are counted by `missing`.
    spread = worst.distribution
    subjects = counted(spread.samples + spread.missing, subject)
    if not spread.samples:
        since_us = run.end_us - worst.fault.injected_us
        return Figure(
            value=f"{spread.missing:,}",
            unit=f"of {subjects}",
            label=f"still without {_LACKED[subject]}",
            note=_with_warning(
                f"at the end, {duration_text(since_us)} after the fault", spread.disturbed
            ),
            tone="warn",
        )
    # The note is, for example, `median 1.1 s of 12 members; 2 not over when the run ended`.
    median_us = spread.percentile(50)
    median_of = f"median {duration_text(median_us)} of " if median_us is not None else "of "
    not_over = f"; {spread.missing} not over {_at_the_end(run)}" if spread.missing else ""
    return _duration(
        worst.longest_us,
        bound_us=spread.bound_us,
        label=label,
        note=f"{median_of}{subjects}{not_over}",
        tone="warn" if worst.longest_us >= _WARN_FROM_US else "good",
        disturbed=spread.disturbed,
    )


def _rebalances(run: ReportInput) -> Figure:
    """Return the figure of the number of rebalances after the faults of the run."""
    faults = run.summary.faults
    after = "after the fault" if len(faults) == 1 else "after the faults"
    reasons = _reasons(faults)
    note = f"{after}{_until(run)}; {reasons}" if reasons else f"{after}{_until(run)}"
    number = rebalances_in(run.summary)
    return Figure(
        value=f"{number:,}",
        unit="",
        label="rebalance" if number == 1 else "rebalances",
        note=_with_warning(
            note,
            any(rebalances.disturbed for fault in faults for rebalances in fault.rebalances),
        ),
        tone="plain" if number or run.cut_off else "good",
    )


def _processed_again(run: ReportInput) -> Iterator[Figure]:
    """Yield the number of records that were processed again; nothing if there were none."""
    again = sum(group.repeated for group in run.summary.processing)
    if again:
        records = sum(group.records for group in run.summary.processing)
        yield Figure(
            value=f"{again:,}",
            unit="time" if again == 1 else "times",
            label="a record was processed again",
            note=_with_warning(
                f"{records:,} processings of {records - again:,} distinct records",
                run.summary.felt is not None and run.summary.felt.disturbed,
            ),
            tone="warn",
        )


def _reasons(faults: Sequence[FaultSummary]) -> str:
    """Return the reasons for rebalances in the order of time, with numbers if there are several.

    For example, `reason: join` or `reasons: session expiry (1), join (2)`.
    """
    counts: dict[str, int] = {}
    all_rebalances = [rebalances for fault in faults for rebalances in fault.rebalances]
    for rebalances in sorted(all_rebalances, key=lambda rebalances: rebalances.first_us):
        counts[rebalances.reason] = counts.get(rebalances.reason, 0) + rebalances.count
    if len(counts) < 2:
        return "".join(f"reason: {reason}" for reason in counts)
    return "reasons: " + ", ".join(f"{reason} ({count:,})" for reason, count in counts.items())


def _kept_ids(run: ReportInput) -> Iterator[Figure]:
    """Yield the number of members that kept their member id; nothing if no member was concerned.

    Every rebalance changes the generation of all members. If there was no rebalance, the figure
    therefore counts the members that kept both their member id and their generation.
    """
    concerned = [fault for fault in run.summary.faults if fault.members]
    if not concerned:
        return
    # After several faults, each number is the worst one of all faults: the most members that a
    # fault concerned, and the fewest members that kept their ids. These can belong to different
    # faults.
    members = max(fault.members for fault in concerned)
    rebalanced = any(fault.rebalances for fault in concerned)
    members_kept = min(
        fault.members_kept_id if rebalanced else fault.members_kept for fault in concerned
    )
    yield Figure(
        value=f"{members_kept:,}",
        unit=f"of {members:,}",
        label="members kept their member id" + ("" if rebalanced else " and generation"),
        tone="good" if members_kept == members and not run.cut_off else "plain",
    )


def _counts(run: ReportInput) -> Iterator[Figure]:
    """Yield figures that every run has: checks, commits, records, and the run's length."""
    results = run.facts.results_or_empty
    outcomes = [check.outcome for check in results.checks]
    if outcomes:
        idle = outcomes.count(CheckOutcome.NOTHING_SEEN)
        yield Figure(
            value=f"{outcomes.count(CheckOutcome.PASS)}",
            unit=f"of {len(outcomes)}",
            label="checks passed" + (f", {idle} not put to the test" if idle else ""),
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
    return f"when the run {'was cut off' if run.cut_off else 'ended'}"


def _until(run: ReportInput) -> str:
    return " until the run was cut off" if run.cut_off else ""


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

    - `bound_us`: the error of the clocks; a shorter duration is printed as "less than the error".
    - `disturbed`: a machine was away by accident in this time.
    """
    # `1.25 s` is the value `1.25` and the unit `s`.
    value, _, unit = duration_text(value_us, bound_us=bound_us).rpartition(" ")
    return Figure(
        value=value, unit=unit, label=label, note=_with_warning(note, disturbed), tone=tone
    )


def _with_warning(note: str, disturbed: bool) -> str:
    """Return the note of a figure, with a warning if a machine was away in the figure's time."""
    if not disturbed:
        return note
    return f"{note}; {_DISTURBED}" if note else _DISTURBED
