"""A run's figures as plain Python: phases and gaps with percentiles, and how they print.

Knows neither Spark nor the terminal: `summary` fills these, the command line shows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.summary.felt import Felt
from pipeline.summary.outcomes import (
    CommitErrors,
    Coordinators,
    GroupProcessing,
    Owners,
    Rebalances,
)

Chain = Literal["broker", "client", "gap"]
"""Which table of the summary a measure stands in. Chains overlap in time: never add them up."""

PERCENTS = (50, 90, 99)
HEADER = ("samples", "missing", "p50", "p90", "p99", "max")
"""What the cells of `Distribution.cells` are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure: a column of a table, over all of a fault's rows.

    `subject_kind` picks rows of `availability`. `is_time`: microseconds, otherwise a count.
    `across_nodes`: it starts on one node's clock and ends on another's.
    """

    chain: Chain
    name: str
    table: str
    column: str
    subject_kind: str | None = None
    is_time: bool = True
    across_nodes: bool = False


def _measure(
    place: tuple[Chain, str],
    name: str,
    column: str,
    *,
    subject_kind: str | None = None,
    is_time: bool = True,
    across_nodes: bool = False,
) -> Measure:
    chain, table = place
    return Measure(
        chain=chain,
        name=name,
        table=table,
        column=column,
        subject_kind=subject_kind,
        is_time=is_time,
        across_nodes=across_nodes,
    )


_BROKER: tuple[Chain, str] = ("broker", "broker_phases")
_CLIENT: tuple[Chain, str] = ("client", "client_phases")
_GAP: tuple[Chain, str] = ("gap", "availability")

MEASURES: tuple[Measure, ...] = (
    _measure(_BROKER, "detect", "detect_us", across_nodes=True),
    _measure(_BROKER, "publish", "publish_us", across_nodes=True),
    _measure(_BROKER, "load wait", "load_wait_us"),
    _measure(_BROKER, "load", "load_us"),
    _measure(_BROKER, "records read", "records", is_time=False),
    _measure(_BROKER, "bytes read", "bytes", is_time=False),
    _measure(_CLIENT, "notice", "notice_us", across_nodes=True),
    _measure(_CLIENT, "rediscover", "rediscover_us"),
    _measure(_CLIENT, "accept", "accept_us"),
    _measure(_CLIENT, "join", "join_us"),
    _measure(_CLIENT, "sync", "sync_us"),
    _measure(_CLIENT, "longest wait", "longest_wait_us"),
    _measure(_CLIENT, "lookups", "attempts", is_time=False),
    _measure(_CLIENT, "stale answers", "stale_answers", is_time=False),
    _measure(_CLIENT, "old named itself", "self_answers", is_time=False),
    _measure(_CLIENT, "timeouts at old", "commit_timeouts", is_time=False),
    _measure(_CLIENT, "heartbeats at old", "late_heartbeats", is_time=False),
    _measure(_GAP, "commit gap", "gap_us", subject_kind="member"),
    _measure(_GAP, "processing gap", "gap_us", subject_kind="partition", across_nodes=True),
    _measure(_GAP, "no coordinator", "gap_us", subject_kind="group", across_nodes=True),
)
"""Everything that is summed up per fault, in the order in which it is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A measure over all its subjects (partitions, members, groups).

    Units: microseconds, or counts, as the measure says; `bound_us` is the clocks' error, 0 where it
    does not matter. `samples` have a value, `missing` have none: a phase that a member did not
    need, or that did not end before the run did. `percentiles` are values that occurred
    (nearest rank).
    """

    samples: int
    missing: int
    percentiles: Mapping[int, int]
    maximum: int | None
    bound_us: int = 0

    def percentile(self, percent: int) -> int | None:
        """Return a percentile if there are enough samples for it.

        The rule: at least one sample must be expected above it. The 90th needs 10 samples, the
        99th 100; the median needs one.
        """
        return self.percentiles.get(percent) if self.samples >= samples_needed(percent) else None

    def cells(self, *, is_time: bool) -> tuple[str, ...]:
        """Return the cells of HEADER, as text; empty where there is nothing to say."""
        values = (*(self.percentile(percent) for percent in PERCENTS), self.maximum)
        show = [self._shown(value, is_time=is_time) for value in values]
        return (str(self.samples), str(self.missing) if self.missing else "", *show)

    @property
    def longest_text(self) -> str:
        """The longest of these times as text; `never` if a subject never got there."""
        if self.missing and not self.samples:
            return "never"
        return self._shown(self.maximum, is_time=True)

    def _shown(self, value: int | None, *, is_time: bool) -> str:
        if value is None:
            return ""
        return length_text(value, bound_us=self.bound_us) if is_time else f"{value:,}"


def samples_needed(percent: int) -> int:
    """Return from how many samples on a percentile says something."""
    return 1 if percent <= 50 else -(-100 // (100 - percent))


def duration_text(value_us: int, *, bound_us: int = 0) -> str:
    """Return a duration for people: three digits and a unit, or that it is below the clocks' error.

    Units: microseconds in; a negative one is an error of the clocks, and printed if it is larger
    than they are said to have.
    """
    if abs(value_us) < bound_us:
        return f"< {duration_text(bound_us)}"
    size = abs(value_us)
    if size < 1_000:
        return f"{value_us} us"
    if size < 999_500:  # above, three digits of milliseconds round to a second
        ms = value_us / 1_000
        return f"{ms:.3g} ms" if size < 99_950 else f"{ms:.0f} ms"
    return f"{value_us / 1_000_000:.2f} s"


def length_text(value_us: int, *, bound_us: int = 0) -> str:
    """Return a duration as `duration_text` does; none at all needs no unit."""
    return duration_text(value_us, bound_us=bound_us) if value_us or bound_us else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSummary:
    """What one fault did.

    Units: `injected_us`, `healed_us` (None: never) on the run's clock. `measures` holds those of
    MEASURES that have rows, in that order. `members` counts the members of affected groups,
    `members_kept` those known after the fault by the same member id and generation as before,
    `members_kept_id` those by the same member id. `noticed_by` counts what made members give their
    coordinator up; `left_after` counts, by how many of its commits had timed out at the old
    coordinator, the members that left it after at least one; `told_by_old` the members that were
    told by the old coordinator itself that it still was theirs. `rebalances` are those that began
    between this fault and the next.
    """

    fault: str
    kind: str | None
    target: str | None
    node: str | None
    injected_us: int
    healed_us: int | None
    partitions_moved: int
    members: int
    members_kept: int
    members_kept_id: int
    measures: tuple[tuple[Measure, Distribution], ...]
    noticed_by: tuple[tuple[str, int], ...] = ()
    left_after: tuple[tuple[int, int], ...] = ()
    told_by_old: int = 0
    rebalances: tuple[Rebalances, ...] = ()

    @property
    def rebalance_count(self) -> int:
        """How many rebalances began between this fault and the next."""
        return sum(rebalances.count for rebalances in self.rebalances)

    def distribution(self, name: str) -> Distribution | None:
        """Return one of the measures, None if it has no rows."""
        return next((found for measure, found in self.measures if measure.name == name), None)

    def rows(self, chain: Chain) -> tuple[tuple[str, ...], ...]:
        """Return the lines of a chain to print: the measure's name, then the cells of HEADER.

        What the fault is not about is left out: a step that no member needed (join), a count or a
        gap that is zero for all, and every phase of a failover where no coordinator moved.
        """
        return tuple(
            (measure.name, *distribution.cells(is_time=measure.is_time))
            for measure, distribution in self.measures
            if measure.chain == chain and self.is_about(measure)
        )

    def is_about(self, measure: Measure, *, if_zero: bool = False) -> bool:
        """Return whether a measure is printed; `if_zero`: as if it were not zero for all."""
        distribution = self.distribution(measure.name)
        if distribution is None:
            return False
        if not distribution.samples:
            return bool(self.partitions_moved) and measure.name not in _ONLY_IF_NEEDED
        if not distribution.maximum and measure.name in _ONLY_IF_ANY and not if_zero:
            return False
        return bool(self.partitions_moved or measure.name not in _ONLY_IF_MOVED)


_ONLY_IF_NEEDED = frozenset({"join", "sync", "longest wait", "heartbeats at old"})
_ONLY_IF_ANY = frozenset(
    {"load wait", "old named itself", "timeouts at old", "heartbeats at old", "no coordinator"}
)
_ONLY_IF_MOVED = frozenset({"longest wait", "no coordinator"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What one run holds.

    Units: `clock_error_us` between machines; `bad_rows` counts rows set aside, by reason.
    `unreadable` names files set aside, with the reason; `completed` is False for a run that broke
    off or has no events. `coordinators` lists who served a group at once, `owners` who owned its
    partitions at once, each in time order; `processing` what each group processed; `commit_errors`
    what commits met after the first fault, the most frequent first.
    """

    run: str
    directory: Path
    events: int
    completed: bool
    clock_error_us: int
    bad_rows: tuple[tuple[str, int], ...]
    unreadable: tuple[str, ...]
    faults: tuple[FaultSummary, ...]
    coordinators: tuple[Coordinators, ...] = ()
    owners: tuple[Owners, ...] = ()
    processing: tuple[GroupProcessing, ...] = ()
    commit_errors: tuple[CommitErrors, ...] = ()
    felt: Felt | None = None  # None: the run had no groups


@dataclass(frozen=True, slots=True)
class Worst:
    """A measure after the fault that made it longest; never ending counts as longest."""

    fault: FaultSummary
    distribution: Distribution

    @property
    def longest_us(self) -> int:
        """The longest of all subjects that came back; 0 if none did."""
        return self.distribution.maximum or 0


def find_worst(summary: RunSummary, measure: str) -> Worst | None:
    """Return the worst of one measure over all faults; None: nothing was measured."""
    found = [
        Worst(fault, distribution)
        for fault in summary.faults
        if (distribution := fault.distribution(measure)) is not None
        and (distribution.samples or distribution.missing)
    ]
    return max(found, key=_badness, default=None)


def same_gaps(faults: Sequence[FaultSummary], measure: str) -> dict[str, str]:
    """Return the faults into whose longest gap an earlier one fell as well, with that one's id.

    Gaps of one length to the microsecond are one.
    """
    first: dict[int, str] = {}
    found = {}
    for fault in faults:
        gap = fault.distribution(measure)
        if gap is not None and gap.maximum:
            earlier = first.setdefault(gap.maximum, fault.fault)
            if earlier != fault.fault:
                found[fault.fault] = earlier
    return found


def _badness(found: Worst) -> tuple[bool, int]:
    return found.distribution.missing > 0, found.longest_us


def longest_coordinators(summary: RunSummary) -> Coordinators | None:
    """Return the longest time in which a group had two coordinators."""
    return max(summary.coordinators, key=lambda both: both.to_us - both.from_us, default=None)


def longest_owners(summary: RunSummary) -> Owners | None:
    """Return the longest time in which partitions had two owners, beyond the clocks' error."""
    told = [owners for owners in summary.owners if owners.longest_us >= summary.clock_error_us]
    return max(told, key=lambda owners: owners.longest_us, default=None)


def rebalances_in(summary: RunSummary) -> int:
    """Return how many rebalances began after the first fault."""
    return sum(fault.rebalance_count for fault in summary.faults)
