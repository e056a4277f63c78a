"""The figures of a run as plain Python: the phases and gaps after each fault, and their text.

The module `summary` fills these structs, and the command line prints them. This module imports no
Spark.

A run injects faults into a cluster, and measures what follows. The broker that leads a partition of
`__consumer_offsets` (an offsets partition) coordinates the groups of this partition. A fault can
move the partition, and so the coordinator, to another broker.

The error of the clocks is the difference between the clocks of the run's machines. On one machine
it is 0. A figure is disturbed if, in the figure's time, a machine was away by accident: lost or
silent without a planned fault. Felt figures (`felt`) are about effects that users of a group
notice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.summary.disturbances import Disturbance
from pipeline.summary.felt import Felt
from pipeline.summary.outcomes import (
    CommitErrors,
    Coordinators,
    GroupProcessing,
    Owners,
    Rebalances,
)

Chain = Literal["broker", "client", "gap"]
"""The part of the summary to which a measure belongs. The times of different chains overlap, so a
sum of times of two chains has no meaning.

- `broker`: the phases from a fault to the new active coordinator, for each offsets partition;
- `client`: the phases until the new coordinator accepted a member, for each member;
- `gap`: times without service of members, data partitions and groups.
"""

PERCENTS = (50, 90, 99)
"""The percentages of the percentiles of each measure."""
MARK = " *"
"""Text that follows a disturbed figure. `story` has the footnote that explains it."""
HEADER = ("samples", "missing", "p50", "p90", "p99", "max")
"""The names of the cells of `Distribution.cells`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of a fault: the values of one column, in all rows of a table about this fault.

    - `subject_kind`: selects rows of the table `availability`; None for other tables.
    - `is_time`: True if the unit is microseconds, False if the figure is a count.
    - `across_nodes`: True if the time starts on one node's clock and ends on another's. Then the
      error of the clocks matters.
    """

    chain: Chain
    name: str
    table: str
    column: str
    subject_kind: str | None = None
    is_time: bool = True
    across_nodes: bool = False


def _measure(
    chain_and_table: tuple[Chain, str],
    name: str,
    column: str,
    *,
    subject_kind: str | None = None,
    is_time: bool = True,
    across_nodes: bool = False,
) -> Measure:
    """Return a measure. `chain_and_table` is one of the pairs below."""
    chain, table = chain_and_table
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
"""Each chain, with the table that holds the columns of the chain's measures."""

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
"""All measures of a fault, in the order in which they are shown. `tables` defines the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A measure over all its subjects (partitions, members, groups).

    The values are microseconds or counts, depending on the measure.

    - `samples`: number of subjects with a value.
    - `missing`: number of subjects without a value. A subject has no value if it did not need the
      phase, or if the phase did not end before the run's end.
    - `percentiles`: maps a percentage to the percentile, which is always one of the subjects'
      values (nearest rank).
    - `bound_us`: the error of the clocks; 0 if it does not matter for this measure.
    - `disturbed`: a machine was away by accident in the time of the values.
    """

    samples: int
    missing: int
    percentiles: Mapping[int, int]
    maximum: int | None
    bound_us: int = 0
    disturbed: bool = False

    def percentile(self, percent: int) -> int | None:
        """Return a percentile, or None if there are too few samples for it.

        There are enough samples if at least one sample can be expected above the percentile. The
        90th percentile needs 10 samples, and the 99th needs 100 samples. The median needs only one
        sample.
        """
        return self.percentiles.get(percent) if self.samples >= samples_needed(percent) else None

    def cells(self, *, is_time: bool) -> tuple[str, ...]:
        """Return the cells of HEADER as text; a cell without a value is empty."""
        values = (*(self.percentile(percent) for percent in PERCENTS), self.maximum)
        show = [self._shown(value, is_time=is_time) for value in values]
        return (str(self.samples), str(self.missing) if self.missing else "", *show)

    @property
    def longest_text(self) -> str:
        """The maximum as the text of a time; `never` if no subject has a time that ended."""
        if self.missing and not self.samples:
            return f"never{self.mark}"
        return f"{self._shown(self.maximum, is_time=True)}{self.mark}"

    def _shown(self, value: int | None, *, is_time: bool) -> str:
        """Return a value as text; "" for None."""
        if value is None:
            return ""
        return length_text(value, bound_us=self.bound_us) if is_time else f"{value:,}"

    @property
    def mark(self) -> str:
        """MARK if these values are disturbed, otherwise an empty text."""
        return MARK if self.disturbed else ""


def samples_needed(percent: int) -> int:
    """Return the least number of samples for which a percentile is shown."""
    # For the 99th percentile, 1 % of the samples lie above it: 100 samples give one. -(-a // b) is
    # a / b, rounded up.
    return 1 if percent <= 50 else -(-100 // (100 - percent))


def duration_text(value_us: int, *, bound_us: int = 0) -> str:
    """Return a duration as text: three digits and a unit, or `< 5 ms` if the clocks' error is 5 ms.

    `bound_us` is the error of the clocks: a duration below it is not certain. Two clocks can even
    make a duration negative. The arguments are in microseconds.
    """
    if abs(value_us) < bound_us:
        return f"< {duration_text(bound_us)}"
    size = abs(value_us)
    if size < 1_000:
        return f"{value_us} us"
    # From 999,500 us on, whole milliseconds would round to 1000 ms, which is a second.
    if size < 999_500:
        ms = value_us / 1_000
        # From 99,950 us on, three digits are whole milliseconds: `.3g` could print 1e+02.
        return f"{ms:.3g} ms" if size < 99_950 else f"{ms:.0f} ms"
    return f"{value_us / 1_000_000:.2f} s"


def length_text(value_us: int, *, bound_us: int = 0) -> str:
    """Return a duration as `duration_text` does, but `0` if both arguments are 0."""
    return duration_text(value_us, bound_us=bound_us) if value_us or bound_us else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSummary:
    """The figures of one fault.

    `injected_us` and `healed_us` are microseconds on the run's clock. `healed_us` is None if the
    fault was never healed.

    - `measures`: the measures that have rows, in the order of MEASURES.
    - `members`: number of members of the affected groups.
    - `members_kept_id`: number of members that had the same member id after the fault.
    - `members_kept`: number of members that had the same member id and the same generation (the
      number of the group's rebalance) after the fault.
    - `noticed_by`: pairs of a reason for which members gave their coordinator up, and the number of
      these members.
    - `left_after`: pairs (timeouts, members): this many members left the old coordinator after this
      many of their commits, 1 or more, had timed out there.
    - `told_by_old`: number of members to which the old coordinator still named itself as their
      coordinator.
    - `rebalances`: the rebalances that began between this fault and the next one, by kind.
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
        """Number of rebalances that began between this fault and the next."""
        return sum(rebalances.count for rebalances in self.rebalances)

    def distribution(self, name: str) -> Distribution | None:
        """Return one of the measures, None if it has no rows."""
        distributions = (figures for measure, figures in self.measures if measure.name == name)
        return next(distributions, None)

    def rows(self, chain: Chain) -> tuple[tuple[str, ...], ...]:
        """Return the lines of a chain for printing: a measure's name, then the cells of HEADER.

        Measures that say nothing about the fault are left out:
        - the time of a step that no member needed, such as a join;
        - a count or gap that is 0 for all subjects;
        - every phase of a failover, if no coordinator moved.
        """
        return tuple(
            (f"{measure.name}{distribution.mark}", *distribution.cells(is_time=measure.is_time))
            for measure, distribution in self.measures
            if measure.chain == chain and self.is_about(measure)
        )

    def is_about(self, measure: Measure, *, if_zero: bool = False) -> bool:
        """Return whether a measure is printed; with `if_zero` even if it is 0 for all subjects."""
        distribution = self.distribution(measure.name)
        if distribution is None:
            return False
        if not distribution.samples:
            # No subject has a value. If a coordinator moved, that is a result, so print it.
            return bool(self.partitions_moved) and measure.name not in _ONLY_IF_NEEDED
        if not distribution.maximum and measure.name in _ONLY_IF_ANY and not if_zero:
            return False
        return bool(self.partitions_moved or measure.name not in _ONLY_IF_MOVED)


_ONLY_IF_NEEDED = frozenset({"join", "sync", "longest wait", "heartbeats at old"})
"""Measures that are not printed if no subject has a value, because no member needed the step."""
_ONLY_IF_ANY = frozenset(
    {"load wait", "old named itself", "timeouts at old", "heartbeats at old", "no coordinator"}
)
"""Measures that are not printed if they are 0 for all subjects."""
_ONLY_IF_MOVED = frozenset({"longest wait", "no coordinator"})
"""Measures that are not printed if no coordinator moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The summary of one run.

    `clock_error_us` is the error of the clocks in microseconds.

    - `bad_rows`: pairs of a reason and the number of rows that were unusable for this reason.
    - `unreadable`: unusable files, with the reason.
    - `completed`: False for a run that broke off or has no events.
    - `coordinators`: pairs of coordinators that served a group at the same time, in time order.
    - `owners`: pairs of sets of members that owned partitions at the same time, in time order.
    - `processing`: records that each group processed.
    - `commit_errors`: errors of commits after the first fault, the most frequent first.
    - `disturbances`: times in which a machine was away by accident.
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
    felt: Felt | None = None  # None if the run had no groups
    disturbances: tuple[Disturbance, ...] = ()


@dataclass(frozen=True, slots=True)
class Worst:
    """The fault after which a measure was longest; a time that never ended counts as longest."""

    fault: FaultSummary
    distribution: Distribution

    @property
    def longest_us(self) -> int:
        """The longest time that ended; 0 if none did."""
        return self.distribution.maximum or 0


def find_worst(summary: RunSummary, measure: str) -> Worst | None:
    """Return the fault with the worst value of a measure; None if the measure has no subjects."""
    candidates = [
        Worst(fault, distribution)
        for fault in summary.faults
        if (distribution := fault.distribution(measure)) is not None
        and (distribution.samples or distribution.missing)
    ]
    return max(candidates, key=_badness, default=None)


def same_gaps(faults: Sequence[FaultSummary], measure: str) -> dict[str, str]:
    """Return each fault whose longest gap is that of an earlier fault, with this earlier fault.

    One long gap can count as the longest gap after two faults. Two gaps of the same length in
    microseconds are taken to be the same gap.
    """
    first_fault_by_length: dict[int, str] = {}
    earlier_by_fault = {}
    for fault in faults:
        gap = fault.distribution(measure)
        if gap is not None and gap.maximum:  # a gap of 0 is none
            first = first_fault_by_length.setdefault(gap.maximum, fault.fault)
            if first != fault.fault:
                earlier_by_fault[fault.fault] = first
    return earlier_by_fault


def _badness(candidate: Worst) -> tuple[bool, int]:
    """Return a sort key. A fault after which some subject's time never ended is the worst."""
    return candidate.distribution.missing > 0, candidate.longest_us


def longest_coordinators(summary: RunSummary) -> Coordinators | None:
    """Return the longest time in which a group had two coordinators."""
    return max(summary.coordinators, key=lambda pair: pair.to_us - pair.from_us, default=None)


def longest_owners(summary: RunSummary) -> Owners | None:
    """Return the longest time in which partitions had two owners, beyond the clocks' error."""
    certain = [owners for owners in summary.owners if owners.longest_us >= summary.clock_error_us]
    return max(certain, key=lambda owners: owners.longest_us, default=None)


def rebalances_in(summary: RunSummary) -> int:
    """Return the number of rebalances after the first fault."""
    return sum(fault.rebalance_count for fault in summary.faults)
