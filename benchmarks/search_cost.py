"""How many runs of the standard space a minute has with this code, compared with older code.

A process plays seeds of the standard space with the code of this checkout. Another process plays
the same seeds with the code of an older checkout (`players`). Both play in turn, interpreted, and
with all the work that `explore` does in a run. As in `explore`, two of five seeds change the plan
of another seed instead of drawing their own. Code that is too old to change plans draws a plan for
these seeds, too. Without another checkout, nothing is measured.

A run costs from a tenth of a second to ten seconds, and the two checkouts may draw different plans
from the same seed. So the figure is the number of all runs divided by the CPU time of all runs. The
median of the rounds would depend on chance, because each round has other plans. For example, this
median was once 0.80 to 0.82 over 10 rounds of 10 seeds, while the CPU times of 200 seeds were
equal. The page shows the median only as a note.
"""

from benchmarks.measurement import Measurement, commit, median_ratio
from benchmarks.players import ROOT, base_checkout, player

SPACE = "standard"
ROUNDS, SEEDS_A_ROUND = 40, 10
GOAL = 0.85
"""Least ratio of this checkout's runs a minute to the runs a minute of the other checkout."""


def run() -> tuple[Measurement, ...]:
    """Measure both checkouts; return nothing without another checkout."""
    base = base_checkout()
    if base is None:
        print("COORDLAB_BASE names no other checkout: nothing to compare with")
        return ()
    # Code that is older than this folder cannot change plans.
    other_is_guided = (base / "chaos" / "exploration" / "guided").is_dir()
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
                other_took_s.append(other_player.seconds(items(seeds, is_guided=other_is_guided)))
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

    If `is_guided`, two of five seeds change the plan of the seed before them, as in `explore`: for
    the seeds 0 to 4, the items are 0, (0, 1), 2, (2, 3) and 4. Otherwise they are the seeds.
    """
    return [(seed - 1, seed) if is_guided and seed % 5 in (1, 3) else seed for seed in seeds]
