"""How much faster runs are with the modules that `make fast` compiles.

Two processes play the same seeds of explorations/reference.yaml, a few seeds in turn: one with
compiled modules, and one without. A third process can play them with the interpreted code of an
older checkout (`players`), and the goal is about the gain over this code. If there is no compiler,
nothing is measured.
"""

import statistics

from benchmarks.measurement import Measurement, commit, median_ratio
from benchmarks.players import ROOT, base_checkout, player
from scripts.compiled import build, missing_for_build

SPACE = "reference"
ROUNDS, SEEDS_A_ROUND = 16, 5
"""In each round, all processes play the same seeds. Each round has other seeds."""
GOAL = 1.7
"""Least ratio of compiled runs a minute to interpreted runs a minute of the other checkout."""


def run() -> tuple[Measurement, ...]:
    """Measure the gain; return nothing without a compiler."""
    missing = missing_for_build()
    if missing is not None:
        print(f"nothing is compiled here: {missing}")
        return ()
    build()
    players = {
        "compiled": player(ROOT, SPACE, compiled=True),
        "interpreted": player(ROOT, SPACE, compiled=False),
    }
    base = base_checkout()
    if base is not None:
        players[f"interpreted at {commit(base)}"] = player(base, SPACE, compiled=False)
    took_s: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(ROUNDS):
        seeds = range(turn * SEEDS_A_ROUND, (turn + 1) * SEEDS_A_ROUND)
        # The order alternates from turn to turn, so that no code always has the warmer processor.
        names = list(players)
        if turn % 2 == 0:
            names.reverse()
        for name in names:
            took_s[name].append(players[name].seconds(list(seeds)))
    for process in players.values():
        process.end()
    per_minute = {
        name: [60 * SEEDS_A_ROUND / seconds for seconds in rounds]
        for name, rounds in took_s.items()
    }
    compiled = per_minute.pop("compiled")
    # The figures that are left are of interpreted code. Only the comparison with the interpreted
    # code of the other checkout has a goal.
    return tuple(
        _measurement(compiled, other, name, judged=name != "interpreted")
        for name, other in per_minute.items()
    )


def _measurement(
    compiled: list[float], other: list[float], name: str, *, judged: bool
) -> Measurement:
    """Return the gain of compiled code over other code. If it is `judged`, it has a goal."""
    ratio = median_ratio(compiled, other)
    return Measurement(
        name=f"explored runs, compiled and {name}",
        value=statistics.median(compiled),
        baseline=statistics.median(other),
        unit="runs/min",
        baseline_name=name,
        ratio=ratio,
        goal=f"at least {GOAL:g}" if judged else "",
        met=ratio >= GOAL if judged else None,
    )
