"""Compares the figures of groups of both designs: which figures did the coordinator change?

The two designs are a group on ZooKeeper and a group with a coordinator. A side is one group of one
run. A change is a moment at which members join or a fault hits. A `Cost` holds what one change cost
one side. A plan is an assignment that a member or a coordinator computes.

A figure counts as changed if its two values differ by a factor of FACTOR or more. The list is
complete, whichever design a figure favours; only figures that are 0 in both designs are left out.
Figures depend on the size of the group, so only groups of one size are compared: the largest size
that both designs have.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.report.two_designs.costs import Cost
from pipeline.report.two_designs.felt_strips import two_owners_us
from pipeline.report.two_designs.sides import ChangeKind, Design, GroupSide, of_design
from pipeline.summary.figures import length_text

FACTOR = 2
"""A figure counts as changed if its two values differ by this factor or more."""
_DESIGNS: tuple[Design, Design] = ("zookeeper", "coordinator")
_REFUSALS = (
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "REBALANCE_IN_PROGRESS",
    "FENCED_INSTANCE_ID",
)
"""Errors with which a coordinator refuses a commit because of the state of the member or the group.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure with its values on ZooKeeper and with a coordinator; times in microseconds."""

    name: str
    values: tuple[float, float]
    is_time: bool = False

    @property
    def texts(self) -> tuple[str, str]:
        """The values as text, ZooKeeper's first."""
        old, new = (self._text(value) for value in self.values)
        return old, new

    @property
    def is_changed(self) -> bool:
        """True if the values differ by FACTOR or more."""
        # If one value is 0, the condition is true. If both were 0, it would be true, too, but
        # `answers` leaves out such figures.
        low, high = sorted(self.values)
        return high >= FACTOR * low

    @property
    def factor_text(self) -> str:
        """The second value as a multiple or a fraction of the first; "" if one of them is 0."""
        old, new = self.values
        if not old or not new:
            return ""
        sign, factor = (
            ("\N{MULTIPLICATION SIGN}", new / old)
            if new >= old
            else ("\N{DIVISION SIGN}", old / new)
        )
        return f"{sign} {factor:.0f}" if factor >= 10 else f"{sign} {factor:.1f}"

    def _text(self, value: float) -> str:
        return length_text(round(value)) if self.is_time else f"{value:,.0f}"


def compared_size(sides: Sequence[GroupSide]) -> int | None:
    """Return the largest group size that both designs have; None if they share no size."""
    sizes = [{side.members for side in of_design(sides, design)} for design in _DESIGNS]
    return max(set.intersection(*sizes), default=None)


def answers(sides: Sequence[GroupSide], costs: Sequence[Cost]) -> tuple[ComparedFigure, ...]:
    """Return the figures of the groups with `compared_size`; without such a size, of all groups.

    A value is the median over groups, or over changes. A figure is left out if it is 0 in both
    designs, or if it is about a change that one of the designs did not have.
    """
    if not all(of_design(sides, design) for design in _DESIGNS):
        return ()
    size = compared_size(sides)
    if size is not None:
        sides = [side for side in sides if side.members == size]
        costs = [cost for cost in costs if cost.side.members == size]
    figures = (*_of_changes(costs), *_of_groups(sides))
    return tuple(figure for figure in figures if any(figure.values))


def _of_changes(costs: Sequence[Cost]) -> Iterator[ComparedFigure]:
    """Compare what a change of the group's members cost in each design."""
    yield from _figure(costs, "join", "requests that a join caused", lambda cost: cost.asked)
    yield from _figure(
        costs,
        "join",
        "notifications that a join sent to members",
        # None with a coordinator, which sends no notifications.
        lambda cost: cost.counts.notifications or 0,
    )
    yield from _figure(costs, "join", "plans computed in a join", lambda cost: cost.counts.plans)
    yield from _figure(costs, "join", "partitions given up in a join", lambda cost: cost.given_up)
    yield from _figure(
        costs,
        "join",
        "longest time of a partition without an owner in a join",
        lambda cost: cost.longest_unowned_us,
        is_time=True,
    )
    yield from _figure(
        costs,
        "join",
        "partition-seconds without an owner in a join",
        lambda cost: cost.unowned_us,
        is_time=True,
    )
    yield from _figure(
        [cost for cost in costs if cost.settled_us is not None],
        "join",
        "time from a join until the group was stable",
        lambda cost: cost.settled_us or 0,
        is_time=True,
    )
    yield from _figure(
        costs,
        "death",
        "longest time of a partition without an owner after a death",
        lambda cost: cost.longest_unowned_us,
        is_time=True,
    )
    yield from _figure(
        costs,
        "death",
        "partition-seconds without an owner after a death",
        lambda cost: cost.unowned_us,
        is_time=True,
    )


def _figure(
    costs: Sequence[Cost],
    kind: ChangeKind,
    name: str,
    value: Callable[[Cost], float],
    *,
    is_time: bool = False,
) -> Iterator[ComparedFigure]:
    """Yield a figure of the changes of one kind, if both designs met such a change."""
    values_by_design = [
        [value(cost) for cost in costs if cost.change.kind == kind and cost.side.design == design]
        for design in _DESIGNS
    ]
    # A list is empty if the design met no such change.
    if all(values_by_design):
        old, new = (median(values) for values in values_by_design)
        yield ComparedFigure(name=name, values=(old, new), is_time=is_time)


def _of_groups(sides: Sequence[GroupSide]) -> Iterator[ComparedFigure]:
    """Compare what the groups went through in the whole run: the median of each design."""
    # Each figure has a name, a function for its value in one group, and True if it is a time.
    counts: tuple[tuple[str, Callable[[GroupSide], float], bool], ...] = (
        ("rebalances that failed and began anew", _failed, False),
        ("committed offsets that went back", lambda side: len(side.rows("offset_rewinds")), False),
        ("commits that were refused", _refused, False),
        (
            "partition-seconds with two owners, each by its own knowledge",
            lambda side: sum(two_owners_us(side).values()),
            True,
        ),
        ("records processed by two owners", _records_both, False),
    )
    for name, value, is_time in counts:
        old, new = (median(value(side) for side in of_design(sides, design)) for design in _DESIGNS)
        yield ComparedFigure(name=name, values=(old, new), is_time=is_time)


def _failed(side: GroupSide) -> int:
    """Return the number of failed attempts, or, with a coordinator, of failed rebalances.

    A rebalance has failed if it led to no stable generation.

    Both count only after the steady state, in which all groups have all their members and
    partitions.
    """
    if side.design == "zookeeper":
        return sum(
            row["outcome"] in ("conflict", "exception") and row["started_us"] >= side.steady_us
            for row in side.rows("zookeeper_attempts")
        )
    return sum(
        row["stable_us"] is None and row["started_us"] >= side.steady_us
        for row in side.rows("rebalances")
    )


def _refused(side: GroupSide) -> int:
    return sum(row["commits"] for row in side.rows("commits") if row["error"] in _REFUSALS)


def _records_both(side: GroupSide) -> int:
    return sum(row["records_both"] for row in side.rows("ownership_overlaps"))
