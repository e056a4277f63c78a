"""The felt figures of a run: the effects of faults that the users of a group notice.

Such effects are times in which nobody processes a partition, a growing lag, and records that are
processed twice. The tables `felt_partitions` and `felt_groups` have the felt figures of each
partition and group. This module holds their distributions over the partitions of a group and of a
run, as plain Python without Spark. The lag of a partition is the number of its records that are not
processed yet. Its usual lag is the greatest lag before the first fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.summary.outcome_summary import AggregateRow, Aggregates

PERCENTS = (50, 90)
"""The percentages of the percentiles of a Spread (`p50`, `p90`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeltMeasure:
    """One figure of a partition: a column of `felt_partitions`.

    - `is_time`: True if the unit is microseconds, False if the figure is a count.
    - `adds_up`: True if the sum over all partitions has a meaning, and is shown.
    - `if_zero`: True if `coordlab compare` in full shows the figure even if it is 0 in all runs.
    """

    name: str
    column: str
    is_time: bool
    adds_up: bool
    if_zero: bool = False


LAG_OVER = "from the peak to the usual lag"
"""Name of a felt figure: the time from the greatest lag until the lag was usual again."""
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
    """The distribution of a felt measure over partitions.

    - `p50`, `p90`: percentiles by nearest rank, in the unit of the measure. `p90` is None for fewer
      than ten partitions.
    - `samples`, `missing`: numbers of partitions with and without a value. A partition has no
      value if no member ever owned it, or if its lag did not become usual again before the run
      ended.
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
    """The felt figures of a group, from the steady state to the end of the run.

    A run is in its steady state when its groups have all their members and partitions.

    - `partitions`: number of partitions.
    - `moved`: number of partitions that went from one owner to another.
    - `came_back`: number of partitions that a former owner got again.
    - `sent_away`: number of removals of members that the coordinator took to be gone, although
      their process ran and could be reached.
    - `spreads`: distributions over the group's partitions, by the names of FELT_MEASURES.
    """

    partitions: int
    rebalances: int
    moved: int
    came_back: int
    sent_away: int
    spreads: Mapping[str, Spread]


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """The felt figures of a run: `in_all` over all partitions of all groups, and by group."""

    in_all: FeltGroup
    groups: Mapping[str, FeltGroup]
    disturbed: bool = False
    """True if a machine was lost or silent after the steady state without a planned fault."""


_COUNTS = ("partitions", "rebalances", "moved", "came_back", "sent_away")
"""Columns of the aggregate `felt_counts`, and fields of FeltGroup."""


def felt_by_run(aggregates: Aggregates) -> dict[str, Felt]:
    """Return the felt figures of each run that had groups.

    An aggregate is a table of few rows over all runs. `felt_spreads` has a row for each group and
    measure, and rows with the group None for all groups of a run together. `felt_counts` has a row
    for each group.
    """
    # For each run and group, the spread of each measure, by the measure's name.
    spreads: dict[tuple[str, str | None], dict[str, Spread]] = {}
    for row in aggregates["felt_spreads"]:
        spreads.setdefault((row["run"], row["group"]), {})[row["measure"]] = _spread(row)
    counts: dict[str, dict[str, AggregateRow]] = {}
    for row in sorted(aggregates["felt_counts"], key=lambda row: (row["run"], row["group"])):
        counts.setdefault(row["run"], {})[row["group"]] = row
    return {
        run: Felt(
            in_all=_group_figures(list(by_group.values()), spreads.get((run, None), {})),
            groups={
                group: _group_figures([row], spreads.get((run, group), {}))
                for group, row in by_group.items()
            },
        )
        for run, by_group in counts.items()
    }


def _group_figures(rows: Sequence[AggregateRow], spreads: Mapping[str, Spread]) -> FeltGroup:
    """Return the figures of the groups in `rows`: one group, or all groups of a run."""
    names = [measure.name for measure in FELT_MEASURES if measure.name in spreads]
    in_order = {name: spreads[name] for name in names}
    counts = {name: sum(row[name] for row in rows) for name in _COUNTS}
    return FeltGroup(**counts, spreads=in_order)


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
