"""Compares groups on ZooKeeper with groups that have a coordinator, figure by figure.

For example, a join caused 72 requests in the group on ZooKeeper, and 9 requests in the group with a
coordinator. The values differ by a factor of 8, so the report lists this figure under "What the
coordinator changed". If the factor is smaller than FACTOR, the figure is listed under "What it did
not change". A figure is listed whether it speaks for ZooKeeper or for the coordinator. Only figures
that are 0 in both designs are left out.

Most figures depend on the size of the group. So if both designs have groups of the same size, only
the groups of the largest such size are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.report.two_designs.costs import FAILED, Cost
from pipeline.report.two_designs.felt_strips import two_owners_us
from pipeline.report.two_designs.sides import ChangeKind, Design, GroupSide, of_design
from pipeline.summary.figures import length_text

FACTOR = 2
"""A figure counts as changed if its two values differ by this factor or more."""
_DESIGNS: tuple[Design, Design] = ("zookeeper", "coordinator")
_TIME_WITH_TWO_OWNERS = "partition-seconds with two owners, each by its own knowledge"
"""The name of the only figure in `_of_groups` that is a time. All other figures are counts."""
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
    """One figure of both designs; times are in microseconds."""

    name: str
    zookeeper: float
    coordinator: float
    is_time: bool = False

    @property
    def zookeeper_text(self) -> str:
        """The value on ZooKeeper as text."""
        return self._text(self.zookeeper)

    @property
    def coordinator_text(self) -> str:
        """The value with a coordinator as text."""
        return self._text(self.coordinator)

    @property
    def is_changed(self) -> bool:
        """True if the values differ by FACTOR or more, or if exactly one of them is 0."""
        # Both values cannot be 0, because `compared_figures` leaves out such figures.
        low, high = sorted((self.zookeeper, self.coordinator))
        return high >= FACTOR * low

    @property
    def factor_text(self) -> str:
        """The factor by which the coordinator changed the value; "" if one of the values is 0.

        If the value is 10 on ZooKeeper and 15 with a coordinator, the text is `× 1.5`. If it is 72
        on ZooKeeper and 9 with a coordinator, the text is `÷ 8.0`.
        """
        if not self.zookeeper or not self.coordinator:
            return ""
        if self.coordinator >= self.zookeeper:
            sign, factor = "\N{MULTIPLICATION SIGN}", self.coordinator / self.zookeeper
        else:
            sign, factor = "\N{DIVISION SIGN}", self.zookeeper / self.coordinator
        return f"{sign} {factor:.0f}" if factor >= 10 else f"{sign} {factor:.1f}"

    def _text(self, value: float) -> str:
        """Return a value as text, in its unit."""
        return length_text(round(value)) if self.is_time else f"{value:,.0f}"


def compared_size(sides: Sequence[GroupSide]) -> int | None:
    """Return the largest group size that both designs have; None if they share no size."""
    # For each design, the sizes of its groups.
    sizes = [{side.members for side in of_design(sides, design)} for design in _DESIGNS]
    return max(set.intersection(*sizes), default=None)


def compared_figures(
    sides: Sequence[GroupSide], costs: Sequence[Cost]
) -> tuple[ComparedFigure, ...]:
    """Return the figures of the groups with `compared_size`; without such a size, of all groups.

    If a design has several groups, or several changes of one kind, the value is the median of their
    values. A figure is left out if it is 0 in both designs, or if it is about a kind of change that
    one of the designs did not have.
    """
    if not all(of_design(sides, design) for design in _DESIGNS):
        return ()
    size = compared_size(sides)
    if size is not None:
        sides = [side for side in sides if side.members == size]
        costs = [cost for cost in costs if cost.side.members == size]
    figures = (*_of_changes(costs), *_of_groups(sides))
    return tuple(figure for figure in figures if figure.zookeeper or figure.coordinator)


def _of_changes(costs: Sequence[Cost]) -> Iterator[ComparedFigure]:
    """Compare what a change of the group's members cost in each design."""
    yield from _figure(costs, "join", "requests that a join caused", lambda cost: cost.all_requests)
    yield from _figure(
        costs,
        "join",
        "notifications that a join sent to members",
        # The number is None for a coordinator, because it sends no notifications.
        lambda cost: cost.counts.notifications or 0,
    )
    yield from _figure(costs, "join", "plans computed in a join", lambda cost: cost.counts.plans)
    yield from _figure(
        costs, "join", "partitions given up in a join", lambda cost: cost.partitions_given_up
    )
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
        [cost for cost in costs if cost.settled_after_us is not None],
        "join",
        "time from a join until the group was stable",
        # These costs have no None, so the 0 only satisfies the type checker.
        lambda cost: cost.settled_after_us or 0,
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
    of_kind = [cost for cost in costs if cost.change.kind == kind]
    zookeeper = [value(cost) for cost in of_kind if cost.side.design == "zookeeper"]
    coordinator = [value(cost) for cost in of_kind if cost.side.design == "coordinator"]
    if zookeeper and coordinator:
        yield ComparedFigure(
            name=name,
            zookeeper=median(zookeeper),
            coordinator=median(coordinator),
            is_time=is_time,
        )


def _of_groups(sides: Sequence[GroupSide]) -> Iterator[ComparedFigure]:
    """Compare what the groups went through in the whole run."""
    figures: tuple[tuple[str, Callable[[GroupSide], float]], ...] = (
        ("rebalances that failed and began anew", _failed_rebalances),
        ("committed offsets that went back", lambda side: len(side.rows("offset_rewinds"))),
        ("commits that were refused", _refused_commits),
        (_TIME_WITH_TWO_OWNERS, lambda side: sum(two_owners_us(side).values())),
        ("records processed by two owners", _records_of_two_owners),
    )
    for name, value in figures:
        yield ComparedFigure(
            name=name,
            zookeeper=median(value(side) for side in of_design(sides, "zookeeper")),
            coordinator=median(value(side) for side in of_design(sides, "coordinator")),
            is_time=name == _TIME_WITH_TWO_OWNERS,
        )


def _failed_rebalances(side: GroupSide) -> int:
    """Return the number of failed attempts on ZooKeeper, or of failed rebalances of a coordinator.

    A rebalance has failed if it led to no stable generation. Rebalances before the steady state do
    not count, because a group that still gathers its first members rebalances in any case.
    """
    if side.design == "zookeeper":
        return sum(
            row["outcome"] in FAILED and row["started_us"] >= side.steady_us
            for row in side.rows("zookeeper_attempts")
        )
    return sum(
        row["stable_us"] is None and row["started_us"] >= side.steady_us
        for row in side.rows("rebalances")
    )


def _refused_commits(side: GroupSide) -> int:
    """Return the number of commits that the coordinator refused with one of _REFUSALS."""
    return sum(row["commits"] for row in side.rows("commits") if row["error"] in _REFUSALS)


def _records_of_two_owners(side: GroupSide) -> int:
    """Return the number of records that both owners processed while a partition had two owners."""
    return sum(row["records_both"] for row in side.rows("ownership_overlaps"))
