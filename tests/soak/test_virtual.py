"""100 seeds of `coordinator_crash` in virtual time: every one passes within the issue's bounds."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.verdict import Verdict
from tests.support.acceptance import (
    DETECT_MAX_US,
    DETECT_MIN_US,
    RESUME_MAX_US,
    CoordinatorFailover,
    VirtualRun,
    coordinator_failover,
    crash_shifted,
    lost_commits,
    play_virtual,
)
from tests.support.soak import say, say_failovers

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).resolve().parents[2]
GROUP = "orders-readers"
SEEDS = 100
SHIFT_MS = 20
"""Each seed's fault fires this much later: 100 of them cover one interval of the heartbeats."""
RECHECKED = 5
DIGEST_OF_SEEDS = """
import json
import sys
from tests.soak.test_virtual import play
print(json.dumps({seed: play(int(seed)).digest for seed in sys.argv[1:]}))
"""


def play(seed: int) -> VirtualRun:
    """Run one seed, its fault at a phase of the heartbeats of its own."""
    return play_virtual(crash_shifted(seed * SHIFT_MS), seed=seed, trace_messages=False)


def problems_of(seed: int, failover: CoordinatorFailover, lost: list[str]) -> list[str]:
    """Return what of one seed is out of the issue's bounds."""
    checks = {
        f"detect {failover.detect_us} us": DETECT_MIN_US <= failover.detect_us <= DETECT_MAX_US,
        f"{failover.rebalances} rebalances": failover.rebalances == 0,
        f"lost commits {lost}": not lost,
        "a member does not commit again": len(failover.resumes_us()) == len(failover.members),
        f"commits again after {failover.resumes_us()[-1]} us": failover.resumes_us()[-1]
        <= RESUME_MAX_US,
        "a member's identity changed": all(len(m.identities) == 1 for m in failover.members),
        "an answer before detection names another broker": all(
            set(m.answers_before_detection) == {failover.victim} for m in failover.members
        ),
    }
    return [f"seed {seed}: {problem}" for problem, holds in checks.items() if not holds]


def test_hundred_seeds_pass_and_a_few_give_the_same_trace_elsewhere() -> None:
    """Swarms find what one seed does not; 5 of them are run again in a process of its own."""
    began = time.monotonic()
    problems: list[str] = []
    digests: dict[str, str] = {}
    failovers: list[CoordinatorFailover] = []
    virtual_us = 0
    for seed in range(SEEDS):
        run = play(seed)
        if run.results.verdict is not Verdict.PASS:
            problems.append(f"seed {seed}: {run.results.verdict} {run.results.reasons}")
            continue
        failover = coordinator_failover(run.rows, run.experiment, GROUP)
        problems += problems_of(seed, failover, lost_commits(run.rows, run.experiment, GROUP))
        failovers.append(failover)
        virtual_us += run.results.ended_at_us
        digests[str(seed)] = run.digest
    wall_s = time.monotonic() - began
    say(
        f"{len(failovers)} of {SEEDS} seeds of coordinator_crash passed: {virtual_us / 1e6:,.0f} "
        f"virtual seconds in {wall_s:.0f} s of one core, checks and figures included"
    )
    say_failovers(failovers)
    say(f"{len(set(digests.values()))} different digests")

    assert problems == []
    assert len(set(digests.values())) == SEEDS
    again = digests_elsewhere(list(digests)[:: SEEDS // RECHECKED])
    assert len(again) == RECHECKED
    assert again == {seed: digests[seed] for seed in again}
    say(f"{len(again)} of them computed again in a process with another hash seed: equal")


def digests_elsewhere(seeds: list[str]) -> dict[str, str]:
    """Return the digests of `seeds`, in reverse order, from a process with another hash seed."""
    done = subprocess.run(
        [sys.executable, "-c", DIGEST_OF_SEEDS, *reversed(seeds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    digests: dict[str, str] = json.loads(done.stdout)
    return digests
