"""Four figures of the first screen, chosen by what happened in the run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pipeline.figures import FaultSummary, duration_text
from pipeline.outcomes import listed
from pipeline.report.report_input import ReportInput
from pipeline.report.worst import (
    Worst,
    longest_coordinators,
    longest_owners,
    rebalances_in,
    worst,
)
from pipeline.story import counted

Tone = Literal["good", "bad", "warn", "plain"]
NUMBER = 4
_WITHOUT = {"member": "an acknowledged commit", "partition": "anybody to consume them"}
"""What members and partitions of data that had not come back were still without."""
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
    yield from _twice(run)
    yield from _gaps(run)
    yield from _groups(run)
    yield from _counts(run)


def _broken(run: ReportInput) -> Iterator[Figure]:
    broken = [check for check in run.facts.checks if check.outcome == "violated"]
    if broken:
        findings = sum(check.findings_total for check in broken)
        yield Figure(
            value=f"{findings:,}",
            unit="finding" if findings == 1 else "findings",
            label=f"against {counted(len(broken), 'promise')}",
            note=listed([check.name.replace("_", " ") for check in broken]),
            tone="bad",
        )


def _twice(run: ReportInput) -> Iterator[Figure]:
    owners = longest_owners(run.summary)
    if owners is not None:
        yield _duration(
            owners.longest_us,
            label="two owners at once",
            note=f"of {counted(owners.partitions, 'partition')} of {owners.group}",
            tone="warn",
        )
    both = longest_coordinators(run.summary)
    if both is not None:
        yield _duration(
            both.to_us - both.from_us,
            label="two coordinators at once",
            note=f"{both.older.broker} and {both.newer.broker}, of {listed(both.groups)}",
            tone="warn",
        )


def _gaps(run: ReportInput) -> Iterator[Figure]:
    moved = any(fault.partitions_moved for fault in run.summary.faults)
    gaps = [
        ("commit gap", "longest time without an acknowledged commit", "member"),
        ("processing gap", "longest time in which nobody consumed a partition", "partition"),
    ]
    for measure, label, subject in gaps if moved else reversed(gaps):
        found = worst(run.summary, measure)
        if found is not None:
            yield _gap(found, label, subject)
            break
    service = worst(run.summary, "no coordinator")
    if service is not None and service.longest_us:
        yield _duration(
            service.longest_us,
            bound_us=service.distribution.bound_us,
            label="without an active coordinator",
            note=f"longest of {counted(service.distribution.samples, 'group')}",
        )


def _gap(found: Worst, label: str, subject: str) -> Figure:
    spread = found.distribution
    subjects = counted(spread.samples + spread.missing, subject)
    if not spread.samples:
        return Figure(
            value=f"{spread.missing:,}",
            unit=f"of {subjects}",
            label=f"without {_WITHOUT[subject]} again when the run ended",
            tone="warn",
        )
    median_us = spread.percentile(50)
    middle = f"median {duration_text(median_us)} of " if median_us is not None else "of "
    never = f"; {spread.missing} not over when the run ended" if spread.missing else ""
    return _duration(
        found.longest_us,
        bound_us=spread.bound_us,
        label=label,
        note=f"{middle}{subjects}{never}",
        tone="warn" if found.longest_us >= _FELT_US else "good",
    )


def _groups(run: ReportInput) -> Iterator[Figure]:
    faults = run.summary.faults
    if not faults:
        return
    number = rebalances_in(run.summary)
    reasons = {each.reason for fault in faults for each in fault.rebalances}
    yield Figure(
        value=f"{number:,}",
        unit="",
        label="rebalance" if number == 1 else "rebalances",
        note=listed(sorted(reasons)) if reasons else "after the fault" + "s" * (len(faults) > 1),
        tone="good" if not number else "plain",
    )
    again = sum(group.repeated for group in run.summary.processing)
    if again:
        records = sum(group.records for group in run.summary.processing)
        yield Figure(
            value=f"{again:,}",
            unit="record" if again == 1 else "records",
            label="processed again",
            note=f"of {records:,} processed",
            tone="warn",
        )
    yield from _kept(faults)


def _kept(faults: Sequence[FaultSummary]) -> Iterator[Figure]:
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
        tone="good" if kept == members else "plain",
    )


def _counts(run: ReportInput) -> Iterator[Figure]:
    """Yield what every run has: commits, records, checks, the time that it lasted."""
    facts = run.facts
    passed = sum(check.outcome == "pass" for check in facts.checks)
    if facts.checks:
        yield Figure(value=f"{passed}", unit=f"of {len(facts.checks)}", label="checks passed")
    if facts.commits_acknowledged:
        yield Figure(value=f"{facts.commits_acknowledged:,}", unit="commits", label="acknowledged")
    if facts.records_produced:
        yield Figure(
            value=f"{facts.records_produced:,}",
            unit="records",
            label="acknowledged to producers",
            note=f"{facts.records_consumed:,} consumed",
        )
    yield _duration(run.end_us, label="of the run's clock")
    yield Figure(value=f"{run.summary.events:,}", unit="events", label="in the trace")
    yield Figure(value=f"{len(run.summary.faults)}", unit="", label="faults that hit")


def _duration(
    value_us: int, *, label: str, note: str = "", tone: Tone = "plain", bound_us: int = 0
) -> Figure:
    value, _, unit = duration_text(value_us, bound_us=bound_us).rpartition(" ")
    return Figure(value=value, unit=unit, label=label, note=note, tone=tone)
