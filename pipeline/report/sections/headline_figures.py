"""Four figures of the first screen, chosen by what happened in the run."""

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
_WITHOUT = {"member": "an acknowledged commit", "partition": "anybody who consumes them"}
"""What members and partitions of data that had not come back were still without."""
_DISTURBED = "a machine was away by accident then"
"""What a note says of a figure that therefore proves nothing: a notice on the same screen says so.
"""
_FELT_US = 1_000_000
"""From here on a gap is worth a warning colour: it is longer than a steady commit interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: a number with its unit, what it is, and what to compare it with."""

    value: str
    unit: str
    label: str
    note: str = ""
    tone: Tone = "plain"


def four_figures(run: ReportInput) -> tuple[Figure, ...]:
    """Return the figures that matter most in this run, what was broken first.

    Of a run in which the tool failed only what was counted: nothing of it is about Kafka.
    """
    candidates = _counts(run) if run.facts.status == "failed" else _candidates(run)
    return tuple(islice(candidates, NUMBER))


def _candidates(run: ReportInput) -> Iterator[Figure]:
    yield from _broken(run)
    yield from _missed(run)
    yield from _owners(run)
    both = longest_coordinators(run.summary)
    served_on = both is not None and bool(both.older.heartbeats or both.older.commits)
    if both is not None and served_on:
        yield _coordinators(both)
    yield from _gaps(run)
    if both is not None and not served_on:  # one that stood still concerns nobody so much
        yield _coordinators(both)
    yield from _groups(run)
    yield from _counts(run)


def _broken(run: ReportInput) -> Iterator[Figure]:
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


def _missed(run: ReportInput) -> Iterator[Figure]:
    """Yield how many faults hit, if not all did: such a run did not try what its plan says."""
    outcomes = [fault.outcome for fault in run.facts.faults]
    hits, missed = outcomes.count(FaultOutcome.HIT), outcomes.count(FaultOutcome.MISSED)
    others = len(outcomes) - hits - missed
    if hits < len(outcomes):
        told = (f"{missed:,} hit nothing", missed), (f"{others:,} not injected", others)
        yield Figure(
            value=f"{hits:,}",
            unit=f"of {len(outcomes):,}",
            label="faults hit",
            note=", ".join(words for words, count in told if count),
            tone="warn",
        )


def _owners(run: ReportInput) -> Iterator[Figure]:
    owners = longest_owners(run.summary)
    if owners is not None:
        yield _duration(
            owners.longest_us,
            label="two owners at once",
            note=f"of {counted(owners.partitions, 'partition')} of {owners.group}",
            tone="warn",
            disturbed=owners.disturbed,
        )


def _coordinators(both: Coordinators) -> Figure:
    return _duration(
        both.to_us - both.from_us,
        label="two coordinators at once",
        note=f"{both.older.broker} and {both.newer.broker}, of {listed(both.groups)}",
        tone="warn",
        disturbed=both.disturbed,
    )


def _gaps(run: ReportInput) -> Iterator[Figure]:
    moved = any(fault.partitions_moved for fault in run.summary.faults)
    gaps = [
        ("commit gap", "longest time without an acknowledged commit", "member"),
        ("processing gap", "longest time a partition was not consumed", "partition"),
    ]
    for measure, label, subject in gaps if moved else reversed(gaps):
        found = find_worst(run.summary, measure)
        if found is not None:
            yield _gap(found, label, subject, run)
            break
    service = find_worst(run.summary, "no coordinator")
    if service is not None and service.longest_us:
        yield _duration(
            service.longest_us,
            bound_us=service.distribution.bound_us,
            label="without an active coordinator",
            note=_longest_of_groups(service.distribution.samples, run),
            disturbed=service.distribution.disturbed,
        )


def _longest_of_groups(number: int, run: ReportInput) -> str:
    groups = [row["group"] for row in run.tables.rows("groups")]
    return f"group {groups[0]}" if len(groups) == 1 else f"longest of {counted(number, 'group')}"


def _gap(found: Worst, label: str, subject: str, run: ReportInput) -> Figure:
    spread = found.distribution
    subjects = counted(spread.samples + spread.missing, subject)
    if not spread.samples:
        since_us = run.end_us - found.fault.injected_us
        return Figure(
            value=f"{spread.missing:,}",
            unit=f"of {subjects}",
            label=f"still without {_WITHOUT[subject]}",
            note=_noted(f"at the end, {duration_text(since_us)} after the fault", spread.disturbed),
            tone="warn",
        )
    median_us = spread.percentile(50)
    middle = f"median {duration_text(median_us)} of " if median_us is not None else "of "
    never = f"; {spread.missing} not over {_at_the_end(run)}" if spread.missing else ""
    return _duration(
        found.longest_us,
        bound_us=spread.bound_us,
        label=label,
        note=f"{middle}{subjects}{never}",
        tone="warn" if found.longest_us >= _FELT_US else "good",
        disturbed=spread.disturbed,
    )


def _groups(run: ReportInput) -> Iterator[Figure]:
    faults = run.summary.faults
    if not faults:
        return
    number = rebalances_in(run.summary)
    yield Figure(
        value=f"{number:,}",
        unit="",
        label="rebalance" if number == 1 else "rebalances",
        note=_noted(
            f"after the fault{'s' * (len(faults) > 1)}{_until(run)}"
            + (f"; {reasons}" if (reasons := _reasons(faults)) else ""),
            any(each.disturbed for fault in faults for each in fault.rebalances),
        ),
        tone="plain" if number or run.cut_off else "good",
    )
    again = sum(group.repeated for group in run.summary.processing)
    if again:
        records = sum(group.records for group in run.summary.processing)
        yield Figure(
            value=f"{again:,}",
            unit="time" if again == 1 else "times",
            label="a record was processed again",
            note=_noted(
                f"{records:,} processings of {records - again:,} distinct records",
                run.summary.felt is not None and run.summary.felt.disturbed,
            ),
            tone="warn",
        )
    yield from _kept(run, faults)


def _reasons(faults: Sequence[FaultSummary]) -> str:
    """Return why there were rebalances, in the order of time, each with its number."""
    number: dict[str, int] = {}
    told = [each for fault in faults for each in fault.rebalances]
    for each in sorted(told, key=lambda each: each.first_us):
        number[each.reason] = number.get(each.reason, 0) + each.count
    if len(number) < 2:
        return "".join(f"reason: {reason}" for reason in number)
    return "reasons: " + ", ".join(f"{reason} ({count:,})" for reason, count in number.items())


def _kept(run: ReportInput, faults: Sequence[FaultSummary]) -> Iterator[Figure]:
    """Yield how many members came through: with their generation, if there was no rebalance."""
    concerned = [fault for fault in faults if fault.members]
    if not concerned:
        return
    members = max(fault.members for fault in concerned)
    rebalanced = any(fault.rebalances for fault in concerned)
    kept = min(fault.members_kept_id if rebalanced else fault.members_kept for fault in concerned)
    yield Figure(
        value=f"{kept:,}",
        unit=f"of {members:,}",
        label="members kept their member id" + ("" if rebalanced else " and generation"),
        tone="good" if kept == members and not run.cut_off else "plain",
    )


def _counts(run: ReportInput) -> Iterator[Figure]:
    """Yield what every run has: commits, records, checks, the time that it lasted."""
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
    yield _duration(run.end_us, label="of the run's clock")
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
    value, _, unit = duration_text(value_us, bound_us=bound_us).rpartition(" ")
    return Figure(value=value, unit=unit, label=label, note=_noted(note, disturbed), tone=tone)


def _noted(note: str, disturbed: bool) -> str:
    """Return the note of a figure, with a warning if a machine was away in the figure's time."""
    return f"{note}; {_DISTURBED}" if disturbed and note else _DISTURBED if disturbed else note
