"""Play every experiment with many seeds in virtual time (a simulated clock); all runs must pass.

The seed decides when each node of the experiment starts. So the seed also decides how far the
timers of the nodes have come when a fault hits them. A few seeds are played again in another
process, and must give the same run: a run must depend on nothing but its experiment and its seed.

These tests are a part of the soak, a set of very long tests. `load_or_compute` saves the result of
each run, so that an interrupted soak continues where it ended. `say` prints a line.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import pytest

from chaos.experiment.loader import load_experiment
from results_schema.results import Verdict
from tests.support.evenness import p_of_uniform
from tests.support.soak import ROOT, load_or_compute, say, say_failovers
from tests.support.worlds.acceptance import VirtualRun, play_virtual
from tests.support.worlds.failover import Failover, failover_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_500)]

GROUP = "orders-readers"
# Experiment -> the number of seeds with which it is played, from seed 0 on.
SEEDS = {
    "coordinator_crash": 200,
    "coordinator_crash_static": 20,
    "graceful_move": 20,
    "rolling_restart": 20,
    "member_crash": 20,
    "pause_coordinator": 20,
    "split_network": 20,
    "split_brain_ownership": 10,
    "split_brain_generations": 10,
}
DETECT_US = (7_000_000, 9_000_000)
"""The shortest and the longest time in which the controller notices the death of a broker.

The controller waits 9 s after the last heartbeat of a broker. A broker sends a heartbeat every 2 s.
So the last heartbeat comes up to 2 s before the death of the broker.
"""
P_MIN = 0.01
"""The smallest accepted p of the test whether values are evenly distributed.

1 % of all sets of evenly distributed values have a smaller p. But the seeds are always the same. So
the test does not fail now and then by chance.
"""
RECHECKED = 2
"""How many seeds of each experiment are played again in another process."""
# A program that plays an experiment with some seeds and prints the digest of each run.
DIGEST_OF_SEEDS = """
import json
import sys
from tests.soak.test_experiments import play
name = sys.argv[1]
print(json.dumps({seed: play(name, int(seed)).digest for seed in sys.argv[2:]}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredSeed:
    """The saved result of one seed."""

    verdict: str
    reasons: tuple[str, ...]
    # A hash over all recorded events: equal digests mean equal runs.
    digest: str
    # How long the run lasted by its own simulated clock.
    virtual_us: int
    failover: Failover


def play(name: str, seed: int) -> VirtualRun:
    """Play an experiment with one seed."""
    return play_virtual(load_experiment(name).experiment, seed=seed, trace_messages=False)


def explore(name: str, seed: int) -> ExploredSeed:
    """Play one seed, and return the values that are compared and printed."""
    run = play(name, seed)
    return ExploredSeed(
        verdict=run.results.verdict,
        reasons=run.results.reasons,
        digest=run.digest,
        virtual_us=run.results.ended_at_us,
        failover=failover_of(run.rows, run.experiment, GROUP),
    )


@pytest.mark.parametrize("name", SEEDS)
def test_every_seed_passes_and_a_few_give_the_same_trace_in_another_process(name: str) -> None:
    """A verdict must depend neither on luck nor on the process that plays the run."""
    seeds = {
        seed: load_or_compute(
            "experiments", f"{name}-{seed}", ExploredSeed, partial(explore, name, seed)
        )
        for seed in range(SEEDS[name])
    }
    passed = [run for run in seeds.values() if run.verdict == Verdict.PASS]
    virtual_us = sum(run.virtual_us for run in seeds.values())
    say(
        f"**{name}**: {len(passed)} of {len(seeds)} passed, {virtual_us / 1e6:,.0f} virtual seconds"
    )
    say_failovers([run.failover for run in seeds.values()])

    assert {seed: run.reasons for seed, run in seeds.items() if run.verdict != Verdict.PASS} == {}
    # Different seeds give different runs.
    assert len({run.digest for run in seeds.values()}) == len(seeds)
    # Play RECHECKED seeds again: the first one, and others at equal distances.
    distance = len(seeds) // RECHECKED
    rechecked = list(seeds)[::distance][:RECHECKED]
    digests = digests_elsewhere(name, rechecked)
    assert digests == {str(seed): seeds[seed].digest for seed in rechecked}
    say(f"{len(digests)} of them computed again in a process with another hash seed: equal")


def test_detection_times_are_uniform_over_a_heartbeat_interval() -> None:
    """A broker may die at any time between two heartbeats. So all times from 7 to 9 s are likely.

    The death is noticed after 7 s if the next heartbeat was due, and after 9 s if a heartbeat was
    just sent.
    """
    name = "coordinator_crash"
    detects_us: list[int] = []
    for seed in range(SEEDS[name]):
        explored = load_or_compute(
            "experiments", f"{name}-{seed}", ExploredSeed, partial(explore, name, seed)
        )
        # If the controller noticed nothing, the time counts as 0. The test then fails, because 0 is
        # far below 7 s.
        detects_us.append(explored.failover.decided_us or 0)
    p = p_of_uniform(detects_us, *DETECT_US)
    say(
        f"**{name}**: detect of {len(detects_us)} seeds {min(detects_us) / 1e6:.2f} to "
        f"{max(detects_us) / 1e6:.2f} s; evenly drawn from 7 to 9 s: Kolmogorov-Smirnov, "
        f"p = {p:.2f}"
    )

    # The smallest and the largest value must lie within 0.3 s of the ends of the range, 7 and 9 s.
    assert min(detects_us) < 7_300_000
    assert max(detects_us) > 8_700_000
    assert p > P_MIN


def digests_elsewhere(name: str, seeds: list[int]) -> dict[str, str]:
    """Play the seeds in a new process, and return the digest of each run.

    The process uses another hash seed for Python's dicts and sets. It also plays the seeds in the
    reverse order. Then the digests differ if a run leaves state behind that changes the next run.
    """
    done = subprocess.run(
        [sys.executable, "-c", DIGEST_OF_SEEDS, name, *map(str, reversed(seeds))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    digests: dict[str, str] = json.loads(done.stdout)
    return digests
