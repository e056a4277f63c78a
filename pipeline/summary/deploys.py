"""The cost of a deploy: rebalances, times without service and repeated records of its group.

A deploy is a rollout: the replacement of a group's members by successors, one after another. The
journal of a run lists a rollout among the run's faults. The felt figures of a group are about
effects that its users notice, such as the time in which records waited. A spread (`felt.Spread`) is
the distribution of one felt figure over the partitions of a group. Pure functions compute the cost
from the journal and the felt figures, and return it as values and plain text.

A run is in its steady state when all groups have all their members and partitions. The felt figures
cover not only the rollout, but the whole run after the steady state. If a group had two rollouts,
its figures could not be divided between them, so only a group with a single rollout has a cost. The
text names the run's other faults, because they can have contributed to the cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pipeline.summary.felt import Felt, FeltGroup
from pipeline.summary.figures import MARK, length_text
from pipeline.summary.story import counted
from results_schema.journal import JournalEntry

ROLLOUT = "rollout"
"""The journal's name for a deploy, as a kind of fault."""
UNOWNED = "without an owner"
WAITED = "no processing despite records"
REPEATED = "records processed again"
"""Names of three felt figures, as in `felt.FELT_MEASURES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployCost:
    """The cost of one rollout for its group. Times are in microseconds.

    - `outcome`: "completed", or how the rollout ended otherwise.
    - `replaced`: number of members whose successor became ready.
    - `length_us`: time from the beginning until the last successor was ready; None if no member was
      replaced.
    - `unowned_us`, `longest_us`: time without an owner: the sum over all partitions, and the time
      of the worst partition.
    - `waited_us`, `longest_wait_us`: time in which records waited: the sum over all partitions, and
      the time of the worst partition.
    - `repeated`: number of records that were processed again.
    - `partitions`: number of the group's partitions; `moved`: number of partitions that went from
      one owner to another.
    - `others`: kinds of the run's other faults.
    """

    group: str
    outcome: str
    replaced: int
    length_us: int | None
    rebalances: int
    unowned_us: int
    longest_us: int
    waited_us: int
    longest_wait_us: int
    repeated: int
    moved: int = 0
    partitions: int = 0
    others: tuple[str, ...] = ()
    disturbed: bool = False
    """True if a machine of the Ray cluster was lost or did not answer, without a planned fault, in
    the time that these figures cover."""

    @property
    def mark(self) -> str:
        """The sign of a disturbed figure, " *"; "" if no machine was away."""
        return MARK if self.disturbed else ""


def deploys_of(faults: Sequence[JournalEntry], felt: Felt | None) -> tuple[DeployCost, ...]:
    """Return the cost of each deploy, but none for a group that was deployed more than once."""
    if felt is None:
        return ()
    # `resolved` of a fault's entry holds what the run found out about the fault: of a rollout, its
    # progress. If it has no outcome, the rollout did not begin.
    rollouts = [fault for fault in faults if fault.fault == ROLLOUT and "outcome" in fault.resolved]
    # A rollout affects one group.
    groups = [rollout.blast_radius.groups[0] for rollout in rollouts if rollout.blast_radius.groups]
    others = tuple(
        dict.fromkeys(
            fault.fault
            for fault in faults
            # A fault that was not injected cannot have contributed to the cost.
            if fault not in rollouts and fault.injected_at_us is not None
        )
    )
    return tuple(
        replace(_cost(entry, group, felt.groups[group], others), disturbed=felt.disturbed)
        for entry in rollouts
        for group in entry.blast_radius.groups
        if group in felt.groups and groups.count(group) == 1
    )


def _cost(entry: JournalEntry, group: str, felt: FeltGroup, others: tuple[str, ...]) -> DeployCost:
    """Return what a deploy cost its group, from the fault's entry and the group's felt figures."""
    # `resolved` was read from JSON, and another version of coordlab may have written something else
    # there than a list. Then the rollout counts as one that replaced no member.
    replaced = entry.resolved.get("replaced")
    successors = cast(list[Mapping[str, Any]], replaced if isinstance(replaced, list) else [])
    ready = [successor for successor in successors if successor.get("ready_at_us") is not None]
    # `fired_at_us` is when the injection of the fault began, here the start of the rollout.
    began_us = entry.fired_at_us
    ended_us = max((successor["ready_at_us"] for successor in ready), default=None)
    return DeployCost(
        group=group,
        outcome=str(entry.resolved["outcome"]),
        replaced=len(ready),
        length_us=None if began_us is None or ended_us is None else ended_us - began_us,
        rebalances=felt.rebalances,
        unowned_us=_total(felt, UNOWNED),
        longest_us=_longest(felt, UNOWNED),
        waited_us=_total(felt, WAITED),
        longest_wait_us=_longest(felt, WAITED),
        repeated=_total(felt, REPEATED),
        moved=felt.moved,
        partitions=felt.partitions,
        others=others,
    )


def _total(felt: FeltGroup, name: str) -> int:
    """Return the sum of a felt figure over partitions; 0 if no partition has a value."""
    spread = felt.spreads.get(name)
    if spread is None or spread.total is None:
        return 0
    return spread.total


def _longest(felt: FeltGroup, name: str) -> int:
    """Return the largest value of a felt figure over partitions; 0 if no partition has a value."""
    spread = felt.spreads.get(name)
    if spread is None or spread.maximum is None:
        return 0
    return spread.maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMeasure:
    """One figure of a deploy's cost; less is better.

    `per_member` is True if the figure is also shown divided by the number of replaced members.
    """

    name: str
    value_of: Callable[[DeployCost], int]
    is_time: bool
    per_member: bool

    def text(self, cost: DeployCost) -> str:
        """Return the figure as text."""
        value = self.value_of(cost)
        return f"{length_text(value) if self.is_time else f'{value:,}'}{cost.mark}"

    def text_per_member(self, cost: DeployCost) -> str | None:
        """Return the figure per replaced member; None if that has no meaning for this figure."""
        if not self.per_member or not cost.replaced:
            return None
        per_member = self.value_of(cost) / cost.replaced
        text = length_text(round(per_member)) if self.is_time else f"{per_member:.2f}"
        return f"{text}{cost.mark}"


WAITED_IN_ALL = CostMeasure(
    name="records waited, all partitions",
    value_of=lambda cost: cost.waited_us,
    is_time=True,
    per_member=True,
)
WAITED_AT_WORST = CostMeasure(
    name="records waited, worst partition",
    value_of=lambda cost: cost.longest_wait_us,
    is_time=True,
    per_member=False,
)
UNOWNED_IN_ALL = CostMeasure(
    name="no owner, all partitions",
    value_of=lambda cost: cost.unowned_us,
    is_time=True,
    per_member=True,
)
UNOWNED_AT_WORST = CostMeasure(
    name="no owner, worst partition",
    value_of=lambda cost: cost.longest_us,
    is_time=True,
    per_member=False,
)
REBALANCES = CostMeasure(
    name="rebalances", value_of=lambda cost: cost.rebalances, is_time=False, per_member=True
)
PROCESSED_AGAIN = CostMeasure(
    name="records processed again",
    value_of=lambda cost: cost.repeated,
    is_time=False,
    per_member=True,
)
COST_MEASURES = (
    WAITED_IN_ALL,
    WAITED_AT_WORST,
    UNOWNED_IN_ALL,
    UNOWNED_AT_WORST,
    REBALANCES,
    PROCESSED_AGAIN,
)
"""All figures. The most important one for users is first: the time in which records waited."""


def deploy_text(cost: DeployCost) -> str:
    """Return the cost of a deploy as two sentences."""
    if not cost.replaced:
        return f"the rollout of {cost.group} replaced no member ({cost.outcome})"
    took = "" if cost.length_us is None else f" in {length_text(cost.length_us)}"
    ending = "" if cost.outcome == "completed" else f", and {cost.outcome}"
    members = cost.replaced
    meanwhile = f"; {', '.join(cost.others)} happened meanwhile" if cost.others else ""
    return (
        f"the rollout of {cost.group} replaced {counted(members, 'member')}{took}{ending}. For "
        f"each of them {cost.rebalances / members:.2f} rebalances, "
        f"{length_text(cost.unowned_us // members)} of partitions without an owner and "
        f"{length_text(cost.waited_us // members)} in which records waited "
        f"(in all {cost.rebalances:,}, {length_text(cost.unowned_us)} and "
        f"{length_text(cost.waited_us)}; the worst partition {length_text(cost.longest_us)} and "
        f"{length_text(cost.longest_wait_us)}){cost.mark}{meanwhile}"
    )


def typical_cost(costs: Sequence[DeployCost]) -> DeployCost:
    """Return a cost whose figures are the medians of several costs.

    Of two middle values, the lower one is the median.
    """

    def median(value_of: Callable[[DeployCost], int]) -> int:
        return sorted(map(value_of, costs))[(len(costs) - 1) // 2]

    lengths = sorted(cost.length_us for cost in costs if cost.length_us is not None)
    # The first cost gives the names and the number of partitions. All figures are medians.
    return replace(
        costs[0],
        replaced=median(lambda cost: cost.replaced),
        length_us=lengths[(len(lengths) - 1) // 2] if lengths else None,
        rebalances=median(REBALANCES.value_of),
        unowned_us=median(UNOWNED_IN_ALL.value_of),
        longest_us=median(UNOWNED_AT_WORST.value_of),
        waited_us=median(WAITED_IN_ALL.value_of),
        longest_wait_us=median(WAITED_AT_WORST.value_of),
        repeated=median(PROCESSED_AGAIN.value_of),
        moved=median(lambda cost: cost.moved),
        disturbed=any(cost.disturbed for cost in costs),
    )


def better_texts(
    first_title: str, first: DeployCost, second_title: str, second: DeployCost
) -> tuple[str, ...]:
    """Compare two deploys: return a sentence for each figure, with the better one and the factor.

    The first two sentences are about the time in which records waited. If no record waited in
    either deploy, they are about the time without an owner. A figure that is 0 in both deploys has
    a sentence only if it is the first. Figures within 5 % of each other count as equal.
    """
    if first.waited_us or second.waited_us:
        main, worst = WAITED_IN_ALL, WAITED_AT_WORST
    else:
        main, worst = UNOWNED_IN_ALL, UNOWNED_AT_WORST
    measures = (main, worst, REBALANCES, PROCESSED_AGAIN)
    return tuple(
        _comparison(measure, first_title, first, second_title, second)
        for measure in measures
        if measure is main or measure.value_of(first) or measure.value_of(second)
    )


_CLOSE = 1.05
"""Figures count as equal if the larger one is at most this multiple of the smaller one."""
_ROUND_TIMES = 10
"""A factor ("... times less") of this size or more is printed without decimals."""


def _comparison(
    measure: CostMeasure,
    first_title: str,
    first: DeployCost,
    second_title: str,
    second: DeployCost,
) -> str:
    """Return a sentence: which of two deploys cost less by this measure, and how much less."""
    if measure.value_of(second) < measure.value_of(first):
        better, cheaper, costlier = second_title, second, first
    else:
        better, cheaper, costlier = first_title, first, second

    low, high = measure.value_of(cheaper), measure.value_of(costlier)
    less, more = measure.text(cheaper), measure.text(costlier)
    if high <= low * _CLOSE:
        return f"{measure.name}: no difference, {less}"

    factor = ""
    if low:  # no number is a multiple of 0
        times = high / low
        decimals = 0 if times >= _ROUND_TIMES else 1
        factor = f" ({times:.{decimals}f} times less)"

    less_each, more_each = measure.text_per_member(cheaper), measure.text_per_member(costlier)
    per_member = ""
    if less_each is not None and more_each is not None:
        per_member = f"; for each replaced member {less_each} against {more_each}"
    return f"{measure.name}: {better} is better, {less} against {more}{factor}{per_member}"


def reason_text(title: str, cost: DeployCost) -> str:
    """Return why partitions had no owner for a while in a deploy.

    In a deploy with rebalances, a partition waits for the end of a rebalance. In a deploy without
    rebalances, it waits for the successor of its member.
    """
    if not cost.rebalances:
        return (
            f"In {title} there was no rebalance, and no partition got another owner: each "
            "partition of a replaced member waited until the member's successor was ready"
        )
    return (
        f"In {title} {counted(cost.rebalances, 'rebalance')} gave {cost.moved} of "
        f"{counted(cost.partitions, 'partition')} to other members: a partition waited only while "
        "a rebalance went on"
    )
