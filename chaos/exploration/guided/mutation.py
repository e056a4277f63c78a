"""`mutate`: makes a new plan of faults from an earlier one by a few small changes.

For example, `mutate` moves one fault by two seconds, and adds another fault. The earlier plan is
called the parent, and the new plan the mutant. The mutant keeps most faults of its parent. So the
run of the mutant probably reaches the rare situations of the parent again, and perhaps new
situations after them. Seldom a setting of the experiment is changed, too.

All random values come from the mutant's own seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from msgspec.structs import replace as replace_struct

from chaos.experiment.structs import Experiment, FaultDefinition, microseconds
from chaos.exploration.draw.choices import FirstOf, keys_of
from chaos.exploration.draw.drawn_faults import MAX_FAULTS, draw_one
from chaos.exploration.draw.fault_draw import MS, FaultDraw, length_text
from chaos.exploration.guided.genome import Genome, can_be_run, experiment_of
from chaos.exploration.space import Space
from chaos.faults.processes import NodeLoss
from cluster.host.randomness import stream

ATTEMPTS = 8
"""Number of mutations that are tried until one gives a valid experiment.

If all of them are invalid, the plan of the parent is played with another network seed.
"""
STEPS = (1, 1, 2, 3, 5)
"""Numbers of changes in a mutant. 1 is listed twice, so it is drawn twice as often."""
SAME_NETWORK = 0.5
"""Share of mutants with the network seed of the parent.

The runs of such a mutant and of its parent are equal up to the first change.
"""
MOST_SHIFTED_MS = 5_000
"""Longest time by which one fault is moved, and longest gap between a fault and its repetition."""
MOST_APART_MS = 3_000
"""Longest gap between two faults, if one of them was moved or added near the other."""
_FIRST_ADDED = 1_000
"""Index of the first FaultDraw of a mutation.

A FaultDraw with another index draws other values. The indexes in a drawn plan are all smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Data for one change of a genome.

    `number` is different in each step of each attempt of one mutant. So each step draws other
    values.
    """

    space: Space
    experiment: Experiment
    seed: int
    number: int
    rng: Random

    def fault_draw(self, at_ms: int) -> FaultDraw:
        """Return the FaultDraw of a fault at `at_ms`. It draws the fault's target, duration etc."""
        return FaultDraw(
            experiment=self.experiment,
            space=self.space.faults,
            seed=self.seed,
            index=_FIRST_ADDED + self.number,
            at_ms=at_ms,
        )

    def gap_ms(self, longest_ms: int) -> int:
        """Draw a gap from 1 ms to `longest_ms`; in half of the draws it is negative (earlier)."""
        # A gap does not depend on the time of the FaultDraw, so any time will do.
        gap_ms = self.fault_draw(0).gap_ms("mutation", longest_ms)
        return gap_ms if self.rng.random() < 0.5 else -gap_ms

    def within_window(self, at_ms: int) -> int:
        """Return the time nearest to `at_ms` at which a fault may begin."""
        return max(1, min(at_ms, microseconds(self.space.faults.window) // MS - 1))


# A function that makes one small change of a genome.
_Change = Callable[[_Step, Genome], Genome]


def mutate(space: Space, parent: Genome, seed: int) -> Genome:
    """Return the genome that `seed` makes of `parent`. The experiment of this genome is valid."""
    mutant_rng = stream(seed, "mutant")
    network_seed = parent.network_seed if mutant_rng.random() < SAME_NETWORK else seed
    for attempt in range(ATTEMPTS):
        rng = stream(seed, "mutation", attempt)
        genome = replace(parent, network_seed=network_seed)
        for number in range(rng.choice(STEPS)):
            step = _Step(
                space=space,
                experiment=experiment_of(space, genome, seed),
                seed=seed,
                # Each attempt has ten numbers of its own (twice the length of STEPS), and it has at
                # most five steps (the greatest number in STEPS). So no number occurs twice.
                number=attempt * len(STEPS) * 2 + number,
                rng=rng,
            )
            # `choices` returns a list with one drawn change, which is then called.
            genome = rng.choices(_CHANGES, _WEIGHTS)[0](step, genome)
        # The genome may be equal to its parent, if there was nothing to change, or if the changes
        # undid each other. Such a genome is no mutant.
        if genome != parent and can_be_run(experiment_of(space, genome, seed)):
            return genome
    return replace(parent, network_seed=seed)


def _shift(step: _Step, genome: Genome) -> Genome:
    """Move one fault by up to MOST_SHIFTED_MS."""
    faults = list(genome.faults)
    if not faults:
        return genome
    place = step.rng.randrange(len(faults))
    at_ms = _at_ms(faults[place]) + step.gap_ms(MOST_SHIFTED_MS)
    faults[place] = _moved(step, faults[place], at_ms)
    return genome.with_faults(_sorted(faults))


def _meet(step: _Step, genome: Genome) -> Genome:
    """Move one fault near the beginning or the end of another fault."""
    faults = list(genome.faults)
    if len(faults) < 2:
        return genome
    place, other = step.rng.sample(range(len(faults)), 2)
    at_ms = _at_ms(faults[other])
    duration = faults[other].duration
    if duration is not None and step.rng.random() < 0.5:
        at_ms += microseconds(duration) // MS
    faults[place] = _moved(step, faults[place], at_ms + step.gap_ms(MOST_APART_MS))
    return genome.with_faults(_sorted(faults))


def _lengthen(step: _Step, genome: Genome) -> Genome:
    """Change the duration of one fault that has a duration."""
    faults = list(genome.faults)
    lasting = [place for place, fault in enumerate(faults) if fault.duration is not None]
    if not lasting:
        return genome
    place = step.rng.choice(lasting)
    draw = step.fault_draw(0)  # any time will do, because a length does not depend on the time
    # All durations of the space may be longer than a quick restart. So some of the lengths are
    # drawn as for a quick restart.
    length_ms = draw.restart_ms() if step.rng.random() < 0.3 else draw.length_ms()
    faults[place] = replace_struct(faults[place], duration=length_text(length_ms))
    return genome.with_faults(faults)


def _drop(step: _Step, genome: Genome) -> Genome:
    """Remove one fault."""
    faults = list(genome.faults)
    if faults:
        del faults[step.rng.randrange(len(faults))]
    return genome.with_faults(faults)


def _repeat(step: _Step, genome: Genome) -> Genome:
    """Repeat one fault."""
    faults = list(genome.faults)
    # A mutated plan has the same limit as a drawn plan.
    if not faults or len(faults) >= MAX_FAULTS:
        return genome
    fault = step.rng.choice(faults)
    after_ms = abs(step.gap_ms(MOST_SHIFTED_MS))
    return genome.with_faults(_sorted([*faults, _moved(step, fault, _at_ms(fault) + after_ms)]))


def _add(step: _Step, genome: Genome) -> Genome:
    """Draw a fault or a pattern near a fault of the plan."""
    faults = list(genome.faults)
    if len(faults) >= MAX_FAULTS:
        return genome
    near_ms = _at_ms(step.rng.choice(faults)) if faults else 0
    at_ms = step.within_window(near_ms + step.gap_ms(MOST_APART_MS))
    space = step.space.faults
    # A seed that draws its plan keeps only some of the kinds and patterns of the space. Here all of
    # them may be drawn.
    more = draw_one(step.fault_draw(at_ms), {**space.kinds, **space.patterns})
    return genome.with_faults(_sorted([*faults, *more]))


def _set(step: _Step, genome: Genome) -> Genome:
    """Draw the option of one choice of the space again.

    This is not done if a node of the plan is lost for good. Before such a loss was drawn, it was
    checked that the cluster can do without the node. With another option this may no longer be
    true.
    """
    if any(fault.fault == NodeLoss.name for fault in genome.faults):
        return genome
    # A choice of a count has values of the type FirstOf, each of which keeps the first items of a
    # list. Such choices are left out, because a smaller count may remove a node that a fault of the
    # plan names.
    choices = [
        choice
        for choice in step.space.choices
        if len(choice.options) > 1 and not isinstance(choice.options[0][0], FirstOf)
    ]
    if not choices:
        return genome
    choice = step.rng.choice(choices)
    key = step.rng.choice(keys_of(choice, step.space.base))
    options = {**genome.options, (choice.where, key): step.rng.randrange(len(choice.options))}
    return replace(genome, options=options)


_CHANGES_WITH_WEIGHTS: tuple[tuple[_Change, int], ...] = (
    (_shift, 3),
    (_meet, 3),
    (_lengthen, 3),
    (_drop, 2),
    (_repeat, 2),
    (_add, 3),
    (_set, 2),
)
# These are two lists, because `Random.choices` takes the values and the weights separately.
_CHANGES = [change for change, _ in _CHANGES_WITH_WEIGHTS]
_WEIGHTS = [weight for _, weight in _CHANGES_WITH_WEIGHTS]


def _at_ms(fault: FaultDefinition) -> int:
    return microseconds(fault.at) // MS


def _moved(step: _Step, fault: FaultDefinition, at_ms: int) -> FaultDefinition:
    return replace_struct(fault, at=length_text(step.within_window(at_ms)))


def _sorted(faults: list[FaultDefinition]) -> list[FaultDefinition]:
    return sorted(faults, key=_at_ms)
