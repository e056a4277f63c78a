"""The felt figures of a run: the effects of faults that the users of a group notice.

Users do not see a rebalance or an election. They see that no member processes a partition for a
while, that more and more of its records wait, or that records are processed twice. The tables
`felt_partitions` and `felt_groups` have these figures for each partition and group. `felt_by_run`
sums them up. For example, the partitions of a group were without an owner for 1.2 s in the median,
and the worst partition for 4.2 s. This module needs no Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.summary.outcome_summary import AggregateRow, Aggregates

PERCENTS = (50, 90)
"""The percentiles that a Spread has: `p50` and `p90`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeltMeasure:
    """One felt figure of a partition. Its values are in one column of `felt_partitions`.

    - `name`: the name that users read.
    - `is_time`: True if the values are microseconds, False if they are counts.
    - `adds_up`: True if the sum over all partitions says something, and is shown. The times in
      which partitions had no owner can be added, for example. The greatest lags of partitions
      cannot, because they came at different moments.
    - `if_zero`: True if the comparison of `coordlab run --seeds` shows the figure even if it is 0
      in all runs.
    """

    name: str
    column: str
    is_time: bool
    adds_up: bool
    if_zero: bool = False


LAG_OVER = "from the peak to the usual lag"
"""Name of a felt figure. After a fault, records of a partition wait, and the partition's lag (the
number of waiting records) grows. The figure is the time from the greatest lag until the lag was not
greater than before the first fault."""
FELT_MEASURES = (
    FeltMeasure(name="without an owner", column="unowned_us", is_time=True, adds_up=True),
    FeltMeasure(
        name="no processing despite records",
        column="waited_us",
        is_time=True,
        adds_up=True,
        if_zero=True,
    ),
    FeltMeasure(
        name="records processed again",
        column="repeated",
        is_time=False,
        adds_up=True,
        if_zero=True,
    ),
    FeltMeasure(
        name="records waiting at the peak", column="lag_peak", is_time=False, adds_up=False
    ),
    FeltMeasure(name=LAG_OVER, column="lag_over_us", is_time=True, adds_up=False),
)
"""The felt figures of a partition, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of a felt measure over the partitions of a group or of a run.

    - `samples`, `missing`: how many partitions have a value, and how many have no value. The
      measure `without an owner` has no value for a partition that no member ever owned. The measure
      LAG_OVER has no value for a partition whose lag was still too great when the run ended.
    - `p50`, `p90`, `maximum`: each is the value of one of the partitions (nearest rank). `p90` is
      None for fewer than ten partitions.
    - `total`: the sum over the partitions.

    If no partition has a value, `p50`, `p90`, `maximum` and `total` are None.
    """

    samples: int
    missing: int
    p50: int | None
    p90: int | None
    maximum: int | None
    total: int | None

    @property
    def says_something(self) -> bool:
        """True if some partition has a value other than 0, or has no value."""
        return bool(self.maximum or self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeltGroup:
    """The felt figures of a group, or of all groups of a run together.

    The figures cover the time from the steady state, in which the groups have all their members and
    partitions, to the end of the run.

    - `moved`: how many partitions went from one owner to another.
    - `came_back`: how many of the moved partitions a former owner got again.
    - `sent_away`: how often the coordinator removed a member as gone, although the member's process
      ran and could be reached.
    - `spreads`: for each measure, by its name, the distribution over the partitions.
    """

    partitions: int
    rebalances: int
    moved: int
    came_back: int
    sent_away: int
    spreads: Mapping[str, Spread]


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """The felt figures of a run: of all its groups together (`in_all`), and of each group."""

    in_all: FeltGroup
    groups: Mapping[str, FeltGroup]
    disturbed: bool = False
    """True if a machine was away by accident, and not by a planned fault, while the figures were
    measured."""


_COUNTS = ("partitions", "rebalances", "moved", "came_back", "sent_away")
"""Columns of the aggregate `felt_counts`. The fields of FeltGroup have the same names."""


def felt_by_run(aggregates: Aggregates) -> dict[str, Felt]:
    """Return the felt figures of each run that had groups.

    The figures are made from two aggregates (small tables about all analysed runs). `felt_counts`
    has a row for each group. `felt_spreads` has a row for each group and measure. It also has rows
    in which the group is None, about the partitions of all groups of a run together.
    """
    spreads_by_group: dict[tuple[str, str | None], dict[str, Spread]] = {}
    for row in aggregates["felt_spreads"]:
        spreads_of_group = spreads_by_group.setdefault((row["run"], row["group"]), {})
        spreads_of_group[row["measure"]] = _spread(row)
    counts_by_run: dict[str, dict[str, AggregateRow]] = {}
    for row in sorted(aggregates["felt_counts"], key=lambda row: (row["run"], row["group"])):
        counts_by_run.setdefault(row["run"], {})[row["group"]] = row
    # The key (run, None) of the spreads stands for all groups of the run together.
    return {
        run: Felt(
            in_all=_felt_group(
                list(counts_by_group.values()), spreads_by_group.get((run, None), {})
            ),
            groups={
                group: _felt_group([counts], spreads_by_group.get((run, group), {}))
                for group, counts in counts_by_group.items()
            },
        )
        for run, counts_by_group in counts_by_run.items()
    }


def _felt_group(counts: Sequence[AggregateRow], spreads: Mapping[str, Spread]) -> FeltGroup:
    """Return the figures of one group, or of all groups of a run together.

    `counts` has a row of `felt_counts` for each of these groups, and `spreads` has their spreads by
    the name of the measure.
    """
    sums = {column: sum(row[column] for row in counts) for column in _COUNTS}
    spreads_in_order = {
        measure.name: spreads[measure.name] for measure in FELT_MEASURES if measure.name in spreads
    }
    return FeltGroup(**sums, spreads=spreads_in_order)


def _spread(row: AggregateRow) -> Spread:
    """Return the distribution in one row of the aggregate `felt_spreads`."""
    return Spread(
        samples=row["samples"],
        missing=row["missing"],
        p50=row["p50"],
        p90=row["p90"],
        maximum=row["max"],
        total=row["total"],
    )
