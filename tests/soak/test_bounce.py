"""The times of the experiment `rolling_bounce` agree with times measured on a real cluster.

In a bounce, a member leaves its group and joins it again. The experiment is played with many seeds.
So there are many values of each time, such as the time until the group has settled after a leave.
If the simulation is right, the measured times could have been drawn from these values. Therefore
the measured median must lie in the middle half of the seeds' values, between the 25th and the 75th
percentile. The largest of the twelve measured values must lie between the 1st and the 99th
percentile.

`load_or_compute` saves the result of each seed, so that an interrupted test continues where it
ended. `say` prints a line.
"""

from functools import partial

import pytest

from chaos.experiment.loader import load_experiment
from results_schema.results import Verdict
from tests.support.soak import load_or_compute, say
from tests.support.worlds.acceptance import percentile, play_virtual
from tests.support.worlds.rolling_bounce import Change, RollingBounce, rolling_bounce_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_500)]

GROUP = "orders-readers"
SEEDS = 200
MEASURED_MS = {"leave": (1817, 2517, 3093), "join": (2064, 2794, 3230)}
"""Measured median, 90th percentile and largest value: MEASURED_BOUNCE bounce, eager range."""
CALLBACKS = 6 * 11 + 6 * 12
"""The number of callbacks in a run by which members learn of their new partitions.

In each of the 6 leaves, each of the 11 remaining members gets such a callback. In each of the 6
joins, all 12 members get one. Before each of these callbacks, another callback takes the member's
old partitions away.
"""


def bounce(seed: int) -> RollingBounce:
    """Play the experiment with one seed, check that it passes, and return what its bounces cost."""
    run = play_virtual(
        load_experiment("rolling_bounce").experiment, seed=seed, trace_messages=False
    )
    assert run.results.verdict == Verdict.PASS, run.results.reasons
    return rolling_bounce_of(run.rows, GROUP)


def test_measured_times_agree_with_the_predicted_ones() -> None:
    """The times of all leaves and joins of all seeds are compared.

    A run has six leaves and six joins.
    """
    runs = [
        load_or_compute("bounce", str(seed), RollingBounce, partial(bounce, seed))
        for seed in range(SEEDS)
    ]
    leaves = [change for run in runs for change in run.leaves]
    joins = [change for run in runs for change in run.joins]
    say(f"**rolling_bounce**: {len(runs)} of {len(runs)} passed")
    _say_percentiles("leave: settled", [change.settled_us for change in leaves])
    _say_percentiles("join: settled", [change.settled_us for change in joins])
    _say_percentiles(
        "partition time without an owner, per leave", [leave.unowned_us for leave in leaves]
    )
    _say_percentiles(
        "partition time without an owner, per join", [join.unowned_us for join in joins]
    )
    _say_percentiles(
        "longest pause between commits", [pause for run in runs for pause in run.pauses_us]
    )
    say(f"callbacks: {CALLBACKS} assigned and {CALLBACKS} revoked in each run")

    assert {run.assigned for run in runs} == {CALLBACKS}
    assert {run.revoked for run in runs} == {CALLBACKS}
    # At each change, the assignor range (with the eager protocol) hands out all 12 partitions.
    assert {change.handed_out for change in (*leaves, *joins)} == {12}
    assert {len(run.leaves) for run in runs} == {6}
    assert {len(run.joins) for run in runs} == {6}
    for what, changes in (("leave", leaves), ("join", joins)):
        _check_measured(what, changes)


def _check_measured(what: str, changes: list[Change]) -> None:
    """Check the rules of the module's docstring for the measured median and the largest value."""
    ascending = sorted(change.settled_us for change in changes)
    median_ms, _, largest_ms = MEASURED_MS[what]
    assert percentile(ascending, 25) <= median_ms * 1_000 <= percentile(ascending, 75)
    assert percentile(ascending, 1) <= largest_ms * 1_000 <= percentile(ascending, 99)


def _say_percentiles(what: str, values_us: list[int]) -> None:
    """Print the percentiles of a figure."""
    ascending = sorted(values_us)
    shares = " / ".join(f"{percentile(ascending, p) / 1_000:.0f}" for p in (1, 25, 50, 75, 90, 99))
    say(f"{what}, ms: p1 / p25 / p50 / p75 / p90 / p99 {shares}, max {ascending[-1] / 1_000:.0f}")
