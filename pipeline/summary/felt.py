"""What was felt in a run, as plain Python: of each group, and of all groups together.

The tables `felt_partitions` and `felt_groups` say what each figure is; here their partitions are
summed up. Knows neither Spark nor the terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.summary.outcome_summary import AggregateRow, Aggregates

PERCENTS = (50, 90)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeltMeasure:
    """One figure of a partition: a column of `felt_partitions`.

    `is_time`: microseconds, otherwise a count. `adds_up`: a sum over partitions says something.
    `if_zero`: a 0 is an answer, too, where figures of several seeds are put together.
    """

    name: str
    column: str
    is_time: bool
    adds_up: bool
    if_zero: bool = False


LAG_OVER = "from the peak to the usual lag"
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
"""In the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A measure over partitions: nearest ranks, `p90` only of ten or more.

    Units: as the measure says. `missing` partitions have no value: nobody ever owned them, or as
    many records as before did not wait again until the run ended.
    """

    samples: int
    missing: int
    p50: int | None
    p90: int | None
    maximum: int | None
    total: int | None

    @property
    def says_something(self) -> bool:
        """Whether a partition felt anything of it."""
        return bool(self.maximum or self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeltGroup:
    """What a group went through from the steady state to the end.

    `moved` of its `partitions` had more than one owner, `came_back` of these a former one again;
    `sent_away` counts removals of members that ran and could be reached. `spreads`: by the name
    of a measure in FELT_MEASURES.
    """

    partitions: int
    rebalances: int
    moved: int
    came_back: int
    sent_away: int
    spreads: Mapping[str, Spread]


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """What was felt: `in_all` over all partitions of all groups, and by group."""

    in_all: FeltGroup
    groups: Mapping[str, FeltGroup]


_COUNTS = ("partitions", "rebalances", "moved", "came_back", "sent_away")


def felt_by_run(found: Aggregates) -> dict[str, Felt]:
    """Return what was felt in each run that had groups."""
    spreads: dict[tuple[str, str | None], dict[str, Spread]] = {}
    for row in found["felt_spreads"]:
        spreads.setdefault((row["run"], row["group"]), {})[row["measure"]] = _spread(row)
    counts: dict[str, dict[str, AggregateRow]] = {}
    for row in sorted(found["felt_counts"], key=lambda each: (each["run"], each["group"])):
        counts.setdefault(row["run"], {})[row["group"]] = row
    return {
        run: Felt(
            in_all=_group(list(of_run.values()), spreads.get((run, None), {})),
            groups={
                group: _group([row], spreads.get((run, group), {})) for group, row in of_run.items()
            },
        )
        for run, of_run in counts.items()
    }


def _group(rows: Sequence[AggregateRow], spreads: Mapping[str, Spread]) -> FeltGroup:
    in_order = {each.name: spreads[each.name] for each in FELT_MEASURES if each.name in spreads}
    return FeltGroup(**{name: sum(row[name] for row in rows) for name in _COUNTS}, spreads=in_order)


def _spread(row: AggregateRow) -> Spread:
    return Spread(
        samples=row["samples"],
        missing=row["missing"],
        p50=row["p50"],
        p90=row["p90"],
        maximum=row["max"],
        total=row["total"],
    )
