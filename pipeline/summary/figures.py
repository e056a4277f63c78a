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
      coordinator, and got its own name as the answer.
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
            # But a phase in _ONLY_IF_NEEDED may have no value because no subject needed it.
