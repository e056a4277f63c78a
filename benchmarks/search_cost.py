"""The cost of the search: runs a minute of the standard space, with this code and with another one.

This checkout and another one, which the environment names (`players`), have a process each. Both
play the same seeds of the standard space, in turn and interpreted, with all the work that `explore`
does in a run. As in `explore`, two of five seeds change the plan of another seed instead of drawing
their own. Older code cannot do this, and plays those seeds as drawn. Without another checkout there
is no figure.

A run costs from a tenth of a second to ten seconds, and the two checkouts may draw different plans
from the same seed. So the figure is the number of all runs divided by the CPU time of all runs. The
page also shows the median of the rounds, but this depends on which plans the middle rounds happen
to
have: over 10 rounds of 10 seeds it was 0.80 to 0.82, while the CPU times of 200 seeds were equal.
"""

from benchmarks.measurement import Measurement, commit, median_ratio
from benchmarks.players import ROOT, base_checkout, player

SPACE = "standard"
ROUNDS, SEEDS_A_ROUND = 40, 10
GOAL = 0.85
"""Least ratio of this checkout's runs a minute to those of the other one."""


def run() -> tuple[Measurement, ...]:
    """Measure both checkouts; return nothing without another checkout."""
    base = base_checkout()
    if base is None:
        print("COORDLAB_BASE names no other checkout: nothing to compare with")
        return ()
    is_guided = (base / "chaos" / "exploration" / "guided").is_dir()  # older code has no mutation
    this_player = player(ROOT, SPACE, compiled=False)
    other_player = player(base, SPACE, compiled=False)
    this_took_s, other_took_s = [], []
    for turn in range(ROUNDS):
        seeds = range(turn * SEEDS_A_ROUND, (turn + 1) * SEEDS_A_ROUND)
        # The order alternates, so that neither code always has the warmer processor.
        this_first = turn % 2 == 1
        for plays_this in (this_first, not this_first):
            if plays_this:
                this_took_s.append(this_player.seconds(items(seeds, is_guided=True)))
            else:
                other_took_s.append(other_player.seconds(items(seeds, is_guided=is_guided)))
    this_player.end()
    other_player.end()
    runs = ROUNDS * SEEDS_A_ROUND
    ratio = sum(other_took_s) / sum(this_took_s)
    of_rounds = median_ratio(other_took_s, this_took_s)
    return (
        Measurement(
            name=f"explored runs of the standard space, {runs} seeds",
            value=60 * runs / sum(this_took_s),
            baseline=60 * runs / sum(other_took_s),
            unit="runs/min",
            baseline_name=f"at {commit(base)}",
            ratio=ratio,
            goal=f"at least {GOAL:g}",
            met=ratio >= GOAL,
            note=f"median of {ROUNDS} rounds of {SEEDS_A_ROUND} seeds: {of_rounds:.3f}",
        ),
    )


def items(seeds: range, *, is_guided: bool) -> list[int | tuple[int, ...]]:
    """Return what a player plays for `seeds`.

    An item is a seed, or a lineage: a pair of the seed of a plan and the number of its mutation. If
    `is_guided`, two of five seeds mutate the plan of the seed before them. `explore` mutates about
    as many.
    """
    return [
        # The remainder is 0, 1, 2, 3, 4, 0 and so on. A seed with remainder 1 or 3 mutates the seed
        # before it, whose remainder is 0 or 2, so that this seed is not mutated itself.
        (seed - 1, seed) if is_guided and seed % 5 in (1, 3) else seed
        for seed in seeds
    ]
