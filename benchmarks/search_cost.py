"""The cost of the search: runs a minute of the standard space, against another checkout's.

Both play the same seeds with one process each, in turn, interpreted, with all work that `explore`
does in a run; each draws them from its own space. Two seeds in five mutate another one, as in
`explore` (`mutated` of the space); a checkout without mutation plays those seeds as drawn. Without
another checkout (`players`) there is no figure.
"""

import statistics

from benchmarks.measurement import Measurement, commit, median_ratio
from benchmarks.players import ROOT, base_checkout, player

SPACE = "standard"
ROUNDS, SEEDS_A_ROUND = 10, 10
GOAL = 0.85


def run() -> tuple[Measurement, ...]:
    """Measure; empty without another checkout."""
    base = base_checkout()
    if base is None:
        print("COORDLAB_BASE names no other checkout: nothing to compare with")
        return ()
    is_guided = (base / "chaos" / "exploration" / "guided").is_dir()
    here, there = player(ROOT, SPACE, compiled=False), player(base, SPACE, compiled=False)
    own, other = [], []
    for turn in range(ROUNDS):
        seeds = range(turn * SEEDS_A_ROUND, (turn + 1) * SEEDS_A_ROUND)
        for is_own in (True, False) if turn % 2 else (False, True):
            if is_own:
                own.append(here.seconds(items(seeds, is_guided=True)))
            else:
                other.append(there.seconds(items(seeds, is_guided=is_guided)))
    here.end()
    there.end()
    own, other = ([60 * SEEDS_A_ROUND / seconds for seconds in took_s] for took_s in (own, other))
    ratio = median_ratio(own, other)
    return (
        Measurement(
            name="explored runs of the standard space",
            value=statistics.median(own),
            baseline=statistics.median(other),
            unit="runs/min",
            baseline_name=f"at {commit(base)}",
            ratio=ratio,
            goal=f"at least {GOAL:g}",
            met=ratio >= GOAL,
        ),
    )


def items(seeds: range, *, is_guided: bool) -> list[int | tuple[int, ...]]:
    """Return seeds as `explore` plays them: of five, two mutate the one before them."""
    return [
        (seed - 1, seed) if is_guided and seed % SEEDS_A_ROUND % 5 in (1, 3) else seed
        for seed in seeds
    ]
