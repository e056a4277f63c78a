"""Every experiment over many seeds in virtual time (a simulated clock).

A seed of an experiment draws the start times of its nodes, and with them the phase of every timer.
All seeds must pass. A few are played again in another process, which must give the same results.

Results are kept. `load_or_compute` returns the kept result of a key if the code is unchanged, and
computes it otherwise. `say` prints a line of the soak's record. A digest is a hash over all rows of
a trace: equal digests mean equal runs.
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
# How many seeds of each experiment are played; they begin at 0.
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
"""The range of times until the controller notices the death of a broker.

A broker's session ends 9 s after its last heartbeat. A broker sends a heartbeat every 2 s, so its
last heartbeat is up to 2 s before its death.
"""
LIKELY = 0.01
"""Least accepted p of the test for uniform values; uniform values have a smaller p in 1 %.

The seeds are fixed, so chance cannot change the result.
"""
RECHECKED = 2
"""How many seeds of each experiment are computed again in another process."""
# A program that plays an experiment with some seeds and prints their digests.
DIGEST_OF_SEEDS = """
import json
import sys
from tests.soak.test_experiments import play
name = sys.argv[1]
print(json.dumps({seed: play(name, int(seed)).digest for seed in sys.argv[2:]}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredSeed:
    """The kept result of one seed."""

    verdict: str
    reasons: tuple[str, ...]
    digest: str
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
    """A verdict must depend neither on luck nor on the process."""
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
    # Different seeds make different runs.
    assert len({run.digest for run in seeds.values()}) == len(seeds)
    # RECHECKED seeds, evenly spread over all.
    again = digests_elsewhere(name, list(seeds)[:: len(seeds) // RECHECKED][:RECHECKED])
    assert again == {str(seed): seeds[int(seed)].digest for seed in again}
    say(f"{len(again)} of them computed again in a process with another hash seed: equal")


def test_detection_times_are_uniform_over_a_heartbeat_interval() -> None:
    """The kill may come at any time between two heartbeats, so 7 to 9 s are equally likely."""
    name = "coordinator_crash"
    # A seed without a decision counts as 0, far below the range, which makes p nearly 0.
    detects_us = [
        load_or_compute(
            "experiments", f"{name}-{seed}", ExploredSeed, partial(explore, name, seed)
        ).failover.decided_us
        or 0
        for seed in range(SEEDS[name])
    ]
    even = p_of_uniform(detects_us, *DETECT_US)
    say(
        f"**{name}**: detect of {len(detects_us)} seeds {min(detects_us) / 1e6:.2f} to "
        f"{max(detects_us) / 1e6:.2f} s; evenly drawn from 7 to 9 s: Kolmogorov-Smirnov, "
        f"p = {even:.2f}"
    )

    # The smallest and the largest value lie within 0.3 s of the ends of the range, 7 and 9 s.
    assert min(detects_us) < 7_300_000
    assert max(detects_us) > 8_700_000
    assert even > LIKELY


def digests_elsewhere(name: str, seeds: list[int]) -> dict[str, str]:
    """Play `seeds` in a process with another hash seed, and return the digests.

    The order is reversed, because state that leaks into the next run then changes other digests.
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
