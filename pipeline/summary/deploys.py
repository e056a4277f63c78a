"""What a deploy cost its group: rebalances, times without service, and repeated records.

A deploy is a rollout of new members: the members of a group are replaced by successors, one after
another. A rollout is one of the faults that an experiment can plan, because each replacement may
cost a rebalance. With these functions, the report tells what a deploy cost, and compares two ways
to deploy, such as with and without static membership.

The cost is read from the group's felt figures. These are the figures of what users notice, such as
the time in which records waited. They cover not only the rollout, but the whole run from the moment
at which its groups had all their members. This has two consequences:

- A group with two rollouts has no cost, because its figures could not be divided between the two.
- The text names the other faults of the run, because they may have added to the cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pipeline.summary.felt import Felt, FeltGroup
from pipeline.summary.figures import MARK, length_text
from pipeline.summary.story import counted
from results_schema.journal import JournalEntry

ROLLOUT = "rollout"
"""The name that a deploy has in the run's journal, as a kind of fault."""
UNOWNED = "without an owner"
WAITED = "no processing despite records"
REPEATED = "records processed again"
"""Names of three measures in `felt.FELT_MEASURES`, which are the keys of `FeltGroup.spreads`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployCost:
    """The cost of one rollout for its group. Times are in microseconds."""

    group: str
    outcome: str
    """how the rollout ended, such as `completed`"""
    replaced: int
    """number of members that were replaced: their successors became ready"""
    length_us: int | None
    """time from the beginning of the rollout until the last successor was ready; None if no
    successor became ready"""
    rebalances: int
    unowned_us: int
    """time without an owner, added up over all partitions"""
    longest_us: int
    """time without an owner, of the partition that was longest without an owner"""
    waited_us: int
    """time in which records waited, added up over all partitions"""
    longest_wait_us: int
    """time in which records waited, of the partition whose records waited longest"""
    repeated: int
    """number of records that were processed again"""
    moved: int = 0
    """number of partitions that went from one owner to another"""
    partitions: int = 0
    """number of the group's partitions"""
    others: tuple[str, ...] = ()
    """the kinds of the run's other faults, such as `crash`"""
    disturbed: bool = False
    """True if a machine was away by accident, and not by a planned fault, in the time that the cost
    covers"""

    @property
    def mark(self) -> str:
        """MARK if the cost is disturbed, otherwise an empty text."""
        return MARK if self.disturbed else ""


def deploys_of(faults: Sequence[JournalEntry], felt: Felt | None) -> tuple[DeployCost, ...]:
    """Return the cost of each deploy. A group that was deployed more than once is left out.

    `faults` are the faults in the run's journal, and `felt` has the run's felt figures.
    """
    if felt is None:
        return ()
    # In the entry of a fault, `resolved` holds what became of the fault. A rollout that did not
    # even begin has no outcome there.
    rollouts = [fault for fault in faults if fault.fault == ROLLOUT and "outcome" in fault.resolved]
    # A rollout is about one group, so the first group is the only one.
    groups = [rollout.blast_radius.groups[0] for rollout in rollouts if rollout.blast_radius.groups]
    # Other faults may have added to the cost if they were injected at all.
    other_kinds = dict.fromkeys(
        fault.fault
        for fault in faults
        if fault not in rollouts and fault.injected_at_us is not None
    )
    # The cost of each rollout whose group had no other rollout.
    costs = [
        _cost(rollout, group, felt.groups[group], others=tuple(other_kinds))
        for rollout in rollouts
        for group in rollout.blast_radius.groups
        if group in felt.groups and groups.count(group) == 1
    ]
    return tuple(replace(cost, disturbed=felt.disturbed) for cost in costs)


def _cost(
    rollout: JournalEntry, group: str, felt: FeltGroup, others: tuple[str, ...]
) -> DeployCost:
    """Return what a rollout cost its group, from the group's felt figures."""
    # `replaced` should be a list of the successors. But the journal is JSON that another version of
    # coordlab may have written. If `replaced` is no list, no member counts as replaced.
    replaced = rollout.resolved.get("replaced")
    successors = cast(list[Mapping[str, Any]], replaced if isinstance(replaced, list) else [])
    ready = [successor for successor in successors if successor.get("ready_at_us") is not None]
    began_us = rollout.fired_at_us
    ended_us = max((successor["ready_at_us"] for successor in ready), default=None)
    length_us = None
    if began_us is not None and ended_us is not None:
        length_us = ended_us - began_us
    return DeployCost(
        group=group,
        outcome=str(rollout.resolved["outcome"]),
        replaced=len(ready),
        length_us=length_us,
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


def _total(felt: FeltGroup, measure: str) -> int:
    """Return the sum of a felt measure over the partitions; 0 if no partition has a value."""
    spread = felt.spreads.get(measure)
    if spread is None or spread.total is None:
        return 0
    return spread.total


def _longest(felt: FeltGroup, measure: str) -> int:
    """Return the greatest value of a felt measure; 0 if no partition has a value."""
    spread = felt.spreads.get(measure)
    if spread is None or spread.maximum is None:
        return 0
    return spread.maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMeasure:
    """One figure of a deploy's cost; less is better.

    - `is_time`: True if its unit is microseconds, False if it is a count.
    - `per_member`: True if the figure is also shown divided by the number of replaced members. This
      would make no sense for the time of the worst partition, because it does not grow with the
      number of members.
    """

    name: str
    value_of: Callable[[DeployCost], int]
    is_time: bool
    per_member: bool

    def text(self, cost: DeployCost) -> str:
        """Return the figure of a deploy as text, such as `12.4 s` or `1,204`."""
        value = self.value_of(cost)
        text = length_text(value) if self.is_time else f"{value:,}"
        return f"{text}{cost.mark}"

    def text_per_member(self, cost: DeployCost) -> str | None:
        """Return the figure divided by the number of replaced members, as text.

        Returns None if the figure cannot be divided, or if no member was replaced.
        """
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
"""All figures of the cost of a deploy, the most important one for users first."""


def deploy_text(cost: DeployCost) -> str:
    """Return the cost of a deploy as two sentences.

    Example: "the rollout of readers replaced 6 members in 61.0 s. For each of them 2.00 rebalances,
    1.20 s of partitions without an owner and 1.50 s in which records waited (in all 12, 7.20 s and
    9.00 s; the worst partition 800 ms and 1.10 s)".
    """
    if not cost.replaced:
        return f"the rollout of {cost.group} replaced no member ({cost.outcome})"
    duration = "" if cost.length_us is None else f" in {length_text(cost.length_us)}"
    outcome = "" if cost.outcome == "completed" else f", and {cost.outcome}"
    members = cost.replaced
    meanwhile = f"; {', '.join(cost.others)} happened meanwhile" if cost.others else ""
    return (
        f"the rollout of {cost.group} replaced {counted(members, 'member')}{duration}{outcome}. "
        f"For each of them {cost.rebalances / members:.2f} rebalances, "
        f"{length_text(cost.unowned_us // members)} of partitions without an owner and "
        f"{length_text(cost.waited_us // members)} in which records waited "
        f"(in all {cost.rebalances:,}, {length_text(cost.unowned_us)} and "
        f"{length_text(cost.waited_us)}; the worst partition {length_text(cost.longest_us)} and "
        f"{length_text(cost.longest_wait_us)}){cost.mark}{meanwhile}"
    )


def typical_cost(costs: Sequence[DeployCost]) -> DeployCost:
    """Return the typical cost of several equal deploys: each figure is a median over the deploys.

    The deploys come from runs of one experiment with different seeds. All have the same names and
    the same number of partitions, which are taken from the first deploy.
    """

    def median(value_of: Callable[[DeployCost], int]) -> int:
        """Return the median of one figure over all deploys."""
        return _lower_median([value_of(cost) for cost in costs])

    lengths_us = [cost.length_us for cost in costs if cost.length_us is not None]
    return replace(
        costs[0],
        replaced=median(lambda cost: cost.replaced),
        length_us=_lower_median(lengths_us) if lengths_us else None,
        rebalances=median(REBALANCES.value_of),
        unowned_us=median(UNOWNED_IN_ALL.value_of),
        longest_us=median(UNOWNED_AT_WORST.value_of),
        waited_us=median(WAITED_IN_ALL.value_of),
        longest_wait_us=median(WAITED_AT_WORST.value_of),
        repeated=median(PROCESSED_AGAIN.value_of),
        moved=median(lambda cost: cost.moved),
        disturbed=any(cost.disturbed for cost in costs),
    )


def _lower_median(values: Sequence[int]) -> int:
    """Return the median; if there are two middle values, the lower one."""
    return sorted(values)[(len(values) - 1) // 2]


def better_texts(
    first_title: str, first: DeployCost, second_title: str, second: DeployCost
) -> tuple[str, ...]:
    """Compare two deploys, and return a sentence for each figure.

    Example: "records waited, all partitions: static is better, 3.00 s against 9.00 s (3.0 times
    less); for each replaced member 500 ms against 1.50 s".

    The first two sentences are about the time in which records waited. If no record waited in
    either deploy, they are about the time without an owner instead. A figure that is 0 in both
    deploys has no sentence, unless it is the first figure.
    """
    if first.waited_us or second.waited_us:
        main, worst = WAITED_IN_ALL, WAITED_AT_WORST
    else:
        main, worst = UNOWNED_IN_ALL, UNOWNED_AT_WORST
    measures = (main, worst, REBALANCES, PROCESSED_AGAIN)
    return tuple(
        _comparison_text(measure, first_title, first, second_title, second)
        for measure in measures
        if measure is main or measure.value_of(first) or measure.value_of(second)
    )


_EQUAL_WITHIN = 1.05
"""Figures count as equal if the larger one is at most 5 % larger than the smaller one."""
_WHOLE_FACTOR = 10
"""Smallest factor that is written without decimals, as in "12 times less"."""


def _comparison_text(
    measure: CostMeasure,
    first_title: str,
    first: DeployCost,
    second_title: str,
    second: DeployCost,
) -> str:
    """Return a sentence that tells which of two deploys cost less, by one figure."""
    if measure.value_of(second) < measure.value_of(first):
        cheaper_title, cheaper, costlier = second_title, second, first
    else:
        cheaper_title, cheaper, costlier = first_title, first, second

    low, high = measure.value_of(cheaper), measure.value_of(costlier)
    low_text, high_text = measure.text(cheaper), measure.text(costlier)
    if high <= low * _EQUAL_WITHIN:
        return f"{measure.name}: no difference, {low_text}"

    factor_text = ""
    if low > 0:
        factor = high / low
        decimals = 0 if factor >= _WHOLE_FACTOR else 1
        factor_text = f" ({factor:.{decimals}f} times less)"

    low_each, high_each = measure.text_per_member(cheaper), measure.text_per_member(costlier)
    per_member = ""
    if low_each is not None and high_each is not None:
        per_member = f"; for each replaced member {low_each} against {high_each}"
    return (
        f"{measure.name}: {cheaper_title} is better, {low_text} against {high_text}"
        f"{factor_text}{per_member}"
    )


def reason_text(title: str, cost: DeployCost) -> str:
    """Return a sentence that tells what partitions waited for in a deploy.

    In a deploy without rebalances, a partition waits until the successor of its member is ready. In
    a deploy with rebalances, the partition gets another owner, and waits only until the rebalance
    ends.
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
