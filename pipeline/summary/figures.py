"""The figures of a run as plain Python: the phases and gaps after each fault, and their text.

A run injects faults into a cluster, and measures what follows. If a broker crashes, for example,
the partitions of `__consumer_offsets` that it led (offsets partitions) get another leader, and so
the groups of these partitions get another coordinator. The figures tell how long each phase of this
move took for each partition and each member, and for how long members could not commit.

The module `summary` fills these structs from the tables, which may need Spark. The command line and
the report print them without Spark, so this module must not import Spark.
"""

import math
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
"""The three parts of the figures of a fault:

- `broker`: the phases until the new coordinator was active, for each offsets partition;
- `client`: the phases until the new coordinator accepted a member, for each member;
- `gap`: the longest times without service, for each member, data partition and group.

The three parts describe the same period from three sides. So the times of different parts must not
be added.
"""

PERCENTS = (50, 90, 99)
"""The percentiles of each measure that are computed: p50, p90 and p99."""
MARK = " *"
"""Text that follows a disturbed figure: a machine was away by accident, and not by a planned fault,
while the figure was measured. `story.disturbance_texts` returns the footnote to this mark."""
HEADER = ("samples", "missing", "p50", "p90", "p99", "max")
"""The headings of the cells that `Distribution.cells` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is measured after a fault, such as the commit gap, and where its values are.

    The values are in one column of a table. Each row of the table is about a fault and a subject:
    an offsets partition, a data partition, a member or a group.

    - `subject_kind`: the kind of subjects of this measure. It is only needed for the table
      `availability`, which has subjects of three kinds. None for other tables.
    - `is_time`: True if the values are microseconds, False if they are counts.
    - `across_nodes`: True if the beginning and the end of the time are read from the clocks of two
      nodes. Then the difference between the clocks of their machines makes the time uncertain.
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
    """Return a measure. `chain_and_table` is _BROKER, _CLIENT or _GAP."""
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
"""Each chain with the table from which all its measures come."""

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
"""All measures of a fault, in the order in which they are shown. The docstrings of the functions
`broker_phases`, `client_phases` and `availability` in `pipeline.tables` explain the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The values of a measure after one fault, over all its subjects.

    Example: 12 members (the subjects) could not commit for 0.4 to 3.1 s after a crash.

    - `samples`: number of subjects with a value.
    - `missing`: number of subjects without a value. A subject has no value if it did not need the
      phase (a member that did not have to join again), or if the phase had not ended when the run
      ended.
    - `percentiles`: p50, p90 and p99 by their number, such as `{50: 700_000}`. Each percentile is
      the value of one of the subjects (nearest rank).
    - `bound_us`: the difference between the clocks of the run's machines. A time that is shorter
      than this difference is not certain. 0 if the values are not times across nodes.
    - `disturbed`: True if a machine was away by accident while the values were measured.
    """

    samples: int
    missing: int
    percentiles: Mapping[int, int]
    maximum: int | None
    bound_us: int = 0
    disturbed: bool = False

    def percentile(self, percent: int) -> int | None:
        """Return a percentile, or None if there are too few samples for it.

        The 90th percentile needs 10 samples, the 99th needs 100, and the median needs one.
        """
        return self.percentiles.get(percent) if self.samples >= samples_needed(percent) else None

    def cells(self, *, is_time: bool) -> tuple[str, ...]:
        """Return a cell for each heading of HEADER as text; a cell without a value is empty."""
        values = (*(self.percentile(percent) for percent in PERCENTS), self.maximum)
        texts = [self._shown(value, is_time=is_time) for value in values]
        missing = str(self.missing) if self.missing else ""
        return (str(self.samples), missing, *texts)

    @property
    def longest_text(self) -> str:
        """The longest time as text; `never` if no subject's time ended."""
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
    """Return the least number of samples for which a percentile is shown.

    At least one sample should lie above the percentile. For example, 1 % of the samples lie above
    the 99th percentile, and 1 % of 100 samples is one sample. So the 99th percentile needs 100
    samples. The median is shown even for one sample.
    """
    if percent <= 50:
        return 1
    return math.ceil(100 / (100 - percent))


def duration_text(value_us: int, *, bound_us: int = 0) -> str:
    """Return a duration as text, with three digits and a unit: `812 us`, `40.1 ms`, `2.03 s`.

    `bound_us` is the difference between the clocks that measured the duration. A duration that is
    shorter than the bound is not certain: with a bound of 5,000, its text is `< 5 ms`. A duration
    that two clocks measured can even be negative.
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
    """Return a duration as `duration_text` does, but `0` instead of `0 us`."""
    if value_us == 0 and bound_us == 0:
        return "0"
    return duration_text(value_us, bound_us=bound_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSummary:
    """The figures of one fault.

    - `fault`, `kind`: the fault's id, such as `crash-0`, and its kind, such as `crash`.
    - `target`: the target in the words of the plan, such as `coordinator-of(readers)`.
    - `node`: the node that was the target when the fault was injected.
    - `injected_us`, `healed_us`: microseconds on the run's clock. `healed_us` is None if the fault
      was never healed.
    - `partitions_moved`: number of offsets partitions that the fault moved to a new leader.
    - `members`: number of members of the affected groups.
    - `members_kept_id`: number of these members that had the same member id after the fault.
    - `members_kept`: number of these members that had the same member id and the same generation.
    - `measures`: the measures that have values, in the order of MEASURES.
    - `noticed_by`: the reasons for which members gave their coordinator up, each with the number of
      members: `(("NOT_COORDINATOR", 4), ("REQUEST_TIMED_OUT", 2))`.
    - `left_after`: the numbers of timed-out commits after which members left the old coordinator.
      `((1, 5), (2, 3))` means that 5 members left after one timed-out commit, and 3 members after
      two.
    - `told_by_old`: number of members that asked the old coordinator for the name of their
      coordinator, and were told that the old coordinator still was theirs.
    - `rebalances`: the rebalances that began between this fault and the next one.
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
        """Return the values of one measure by its name; None if it has no values."""
        for measure, distribution in self.measures:
            if measure.name == name:
                return distribution
        return None

    def rows(self, chain: Chain) -> tuple[tuple[str, ...], ...]:
        """Return a line for each measure of a chain: its name, then the cells of HEADER.

        Measures that say nothing about the fault are left out (`is_about`).
        """
        return tuple(
            (f"{measure.name}{distribution.mark}", *distribution.cells(is_time=measure.is_time))
            for measure, distribution in self.measures
            if measure.chain == chain and self.is_about(measure)
        )

    def is_about(self, measure: Measure, *, if_zero: bool = False) -> bool:
        """Return True if a measure says something about this fault. Only then it is printed.

        Some measures say nothing if they are 0 for all subjects (_ONLY_IF_NOT_ZERO). With
        `if_zero`, they count as saying something even then.
        """
        distribution = self.distribution(measure.name)
        if distribution is None:
            return False
        coordinator_moved = self.partitions_moved > 0
        if not distribution.samples:
            # No subject has a value. If a coordinator moved, this tells that the phase never ended.
            # But a phase in _ONLY_IF_NEEDED may have no value because no subject needed it.
            return coordinator_moved and measure.name not in _ONLY_IF_NEEDED
        is_zero = not distribution.maximum
        if is_zero and measure.name in _ONLY_IF_NOT_ZERO and not if_zero:
            return False
        return coordinator_moved or measure.name not in _ONLY_IF_MOVED


_ONLY_IF_NEEDED = frozenset({"join", "sync", "longest wait", "heartbeats at old"})
"""Measures that are not printed if no subject has a value, because then no member needed the step.
"""
_ONLY_IF_NOT_ZERO = frozenset(
    {"load wait", "old named itself", "timeouts at old", "heartbeats at old", "no coordinator"}
)
"""Measures that are not printed if they are 0 for all subjects."""
_ONLY_IF_MOVED = frozenset({"longest wait", "no coordinator"})
"""Measures that are not printed if no coordinator moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The summary of one run.

    - `completed`: False for a run that broke off or has no events.
    - `clock_error_us`: how far the clocks of the run's machines were apart; 0 on one machine.
    - `bad_rows`: reasons for which rows of the trace could not be used, with the number of rows.
    - `unreadable`: files of the trace that could not be read, each as a text with the reason.
    - `coordinators`: times in which a group had two coordinators, in time order.
    - `owners`: times in which partitions had two owners, in time order.
    - `processing`: how many records each group processed.
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
    """The fault of a run after which a measure was worst, with the values after this fault."""

    fault: FaultSummary
    distribution: Distribution

    @property
    def longest_us(self) -> int:
        """The longest of the times that ended; 0 if none of them ended."""
        return 0 if self.distribution.maximum is None else self.distribution.maximum


def find_worst(summary: RunSummary, measure: str) -> Worst | None:
    """Return the fault after which a measure was longest; None if no fault has the measure.

    A time that had not ended when the run ended counts as longer than all others.
    """
    candidates = []
    for fault in summary.faults:
        distribution = fault.distribution(measure)
        if distribution is not None and (distribution.samples or distribution.missing):
            candidates.append(Worst(fault, distribution))
    return max(candidates, key=_badness, default=None)


def _badness(candidate: Worst) -> tuple[bool, int]:
    """Return a sort key: a fault after which a time never ended is worse than all other faults."""
    some_never_ended = candidate.distribution.missing > 0
    return some_never_ended, candidate.longest_us


def same_gaps(faults: Sequence[FaultSummary], measure: str) -> dict[str, str]:
    """Find faults that have the same longest gap as an earlier fault.

    A long gap can go on over a second fault. Then it is the longest gap after both faults, and a
    text should not count it twice. Returns a dict from the later fault to the earlier fault:
    `{"cut-1": "crash-0"}`. Two gaps of the same length in microseconds are taken to be one gap.
    """
    first_fault_by_length: dict[int, str] = {}
    earlier_by_fault = {}
    for fault in faults:
        gap = fault.distribution(measure)
        if gap is None or not gap.maximum:  # there is no gap, or its length is 0
            continue
        first_fault = first_fault_by_length.setdefault(gap.maximum, fault.fault)
        if first_fault != fault.fault:
            earlier_by_fault[fault.fault] = first_fault
    return earlier_by_fault


def longest_coordinators(summary: RunSummary) -> Coordinators | None:
    """Return the longest time in which a group had two coordinators; None if there was none."""
    return max(summary.coordinators, key=lambda pair: pair.to_us - pair.from_us, default=None)


def longest_owners(summary: RunSummary) -> Owners | None:
    """Return the longest time in which partitions had two owners; None if there was none.

    A time that is shorter than the difference between the clocks is not certain, and not counted.
    """
    certain = [owners for owners in summary.owners if owners.longest_us >= summary.clock_error_us]
    return max(certain, key=lambda owners: owners.longest_us, default=None)


def rebalances_in(summary: RunSummary) -> int:
    """Return the number of rebalances after the first fault."""
    return sum(fault.rebalance_count for fault in summary.faults)
