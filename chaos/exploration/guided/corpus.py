"""The corpus: for each mark and each pair of marks, the smallest plans that reached it.

A guided search mutates (changes) plans that have reached rare situations, which are called marks.
It also mutates plans that have reached a rare pair, which is two marks in the same run. The corpus
keeps these plans. For each seed that is to mutate a plan, the corpus chooses one of the kept plans.

The corpus does not store the plans themselves. It stores their lineages, which are the seeds from
which a plan can be made again.
"""

from dataclasses import dataclass
from itertools import combinations

from chaos.exploration.guided.coverage import Coverage, Pair
from chaos.exploration.guided.lineage import MAX_GENERATIONS, Lineage
from cluster.host.randomness import stream

PLANS_EACH = 3
"""Number of plans that are kept for each mark or pair.

If there are several plans, it does no harm that one of them is a bad start.
"""
RARE_MARK_SHARE = 0.1
"""A mark counts as rare here if at most this share of the runs reached it."""
RAREST_MARKS = 10
"""Number of marks for which plans are mutated: the rarest of the rare marks.

There are two limits for marks, because spaces differ. In some spaces no mark is very rare, so
RARE_MARK_SHARE is large. In other spaces very many marks are below this share, so their number is
limited, too.
"""
RAREST_PAIRS = 100
"""Number of pairs for which plans are mutated: the first pairs of `Coverage.rare_pairs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """The data of a run that the corpus needs.

    - `lineage`: the seeds from which the run's plan can be made. The last is the run's own seed.
    - `marks`: the reached marks, sorted.
    - `faults`: the number of faults in the run's plan.
    - `passed`: True if the run had no finding, and proves that all promises were kept.
    """

    lineage: Lineage
    marks: tuple[str, ...]
    faults: int
    passed: bool

    @property
    def is_mutated(self) -> bool:
        """True if the run's plan was made from an earlier plan."""
        return len(self.lineage) > 1


class Corpus:
    """Keeps plans, by the marks and pairs of marks that they reached.

    Only plans of runs that passed are kept. If a run has a finding, its plan is written to a file
    of its own instead.
    """

    def __init__(self) -> None:
        self.coverage = Coverage()
        self._plans: dict[str | Pair, list[RunSeen]] = {}

    def take(self, run: RunSeen) -> None:
        """Add the next run, in the order of seeds.

        The coverage counts every run. But the plan is kept only if the run passed, and if the plan
        may be mutated once more.
        """
        self.coverage.take(run.marks, mutated=run.is_mutated)
        if not run.passed or len(run.lineage) > MAX_GENERATIONS:
            return
        all_reached: list[str | Pair] = [*run.marks, *combinations(run.marks, 2)]
        for reached in all_reached:
            # If the mark or pair has PLANS_EACH plans already, the new plan replaces the largest of
            # these plans, provided that the new plan is smaller.
            plans = self._plans.setdefault(reached, [])
            if len(plans) < PLANS_EACH:
                plans.append(run)
            elif run.faults < (largest := max(plans, key=_size)).faults:
                plans[plans.index(largest)] = run

    def rare(self) -> tuple[list[str], list[Pair]]:
        """Return the rare marks and pairs that have a plan, rarest first.

        There are at most RAREST_MARKS marks and RAREST_PAIRS pairs.
        """
        marks = [mark for mark in self.coverage.rare_marks(RARE_MARK_SHARE) if mark in self._plans]
        pairs = [pair for pair in self.coverage.rare_pairs() if pair in self._plans]
        return marks[:RAREST_MARKS], pairs[:RAREST_PAIRS]

    def plans(self) -> list[Lineage]:
        """Return the plans that are kept for rare marks and pairs, each once, sorted."""
        marks, pairs = self.rare()
        all_rare: list[str | Pair] = [*marks, *pairs]
        kept = [plan.lineage for reached in all_rare for plan in self._plans[reached]]
        return sorted(dict.fromkeys(kept))

    def parent_for(self, seed: int, rare: tuple[list[str], list[Pair]]) -> Lineage | None:
        """Draw the plan that `seed` mutates; None if no rare mark or pair was reached yet.

        `rare` is the result of `rare()`, which the caller computes once for many seeds.
        """
        marks, pairs = rare
        if not marks and not pairs:
            return None
        rng = stream(seed, "parent")
        # Marks are drawn as often as pairs, although there are many more rare pairs.
        for_a_mark = bool(marks) and (not pairs or rng.random() < 0.5)
        reached: str | Pair = rng.choice(marks) if for_a_mark else rng.choice(pairs)
        return rng.choice(self._plans[reached]).lineage


def _size(run: RunSeen) -> tuple[int, int]:
    """Return a sort key of plans: the number of faults, and then the run's seed."""
    return (run.faults, run.lineage[-1])
