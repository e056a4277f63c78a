"""CPU time to shrink a long plan whose groups never recover.

The plan, tests/schedules/seventy_four_faults.yaml, is played with a bug that is planted in the
code. The shrinker then looks for a short plan that shows the same bug: it plays smaller and smaller
plans, and keeps those that still show it.

The baseline is one run of the whole plan. Such a run spends most of its time in waiting for the
groups, until the liveness timeout. If each run of the shrinker waited so long, the shrinker could
play only a few plans. So the runs of the shrinker wait for a shorter time.
"""

import time
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.planted_bugs.bugs import BUGS
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayedRun, play
from chaos.exploration.shrink.shrink import Shrinker, ShrinkProgress
from chaos.exploration.signature import Signature

ROOT = Path(__file__).resolve().parent.parent
SCHEDULE = ROOT / "tests" / "schedules" / "seventy_four_faults.yaml"
BUG = "unfence_elects_nobody"
"""The planted bug: a partition without a leader gets none when one of its brokers comes back."""
SEED = 614
"""With this seed and BUG, the groups never recover from the plan."""
FAULTS_GOAL = 5
"""Number of faults that may be left after CPU_GOAL_S CPU seconds."""
CPU_GOAL_S = 60.0
NEVER_FOUND = Signature(check="liveness", claim="")
"""The signature that the run of the whole plan looks for. No finding has this signature, because
every finding has a claim. So this run is never ended early by a finding.

The check is `liveness` so that the comparison is fair. At its end, a run normally reads the
committed offsets, which takes a minute if a group does not recover. A run that looks for a finding
of `liveness` leaves this reading out. The runs of the shrinker leave it out for the same reason.
"""


def run() -> tuple[Measurement, ...]:
    """Shrink the plan, and measure when at most FAULTS_GOAL faults were left."""
    experiment = load_experiment(str(SCHEDULE)).experiment

    def play_with_bug(candidate: Experiment, seed: int, signature: Signature) -> PlayedRun:
        # `invariants_every=None` switches off the checks that nodes make of their own state,
        # because these would count as time of the shrinker.
        with BUGS[BUG].planted():
            return play(candidate, seed, stop_at=signature, invariants_every=None)

    began_s = time.process_time()
    played = play_with_bug(experiment, SEED, NEVER_FOUND)
    whole_s = time.process_time() - began_s
    # The smaller plans must show the earliest finding of the whole plan.
    finding = min(played.findings, key=lambda found: found.time_us)

    began_s = time.process_time()
    # The CPU seconds and the number of runs when the goal was reached; empty before that.
    reached_goal: list[tuple[float, int]] = []

    def progress(now: ShrinkProgress) -> None:
        if not reached_goal and now.after.faults <= FAULTS_GOAL:
            reached_goal.append((time.process_time() - began_s, now.runs))

    # `last_s` is a required argument without an effect here. It limits only `Shrinker.robustness`,
    # which is not called.
    shrinker = Shrinker(
        play_with_bug,
        now_s=time.process_time,
        deadline_s=began_s + CPU_GOAL_S,
        last_s=began_s + CPU_GOAL_S,
        progress=progress,
    )
    shrunk = shrinker.shrink(experiment, SEED, finding.signature)
    cpu_s = time.process_time() - began_s
    # If the goal was not reached, the whole search counts.
    took_s = cpu_s
    runs = shrunk.runs
    if reached_goal:
        took_s, runs = reached_goal[0]

    return (
        Measurement(
            name=f"CPU until {shrunk.before.faults} faults are at most {FAULTS_GOAL}",
            value=took_s,
            unit="s",
            baseline=whole_s,
            baseline_name="the whole plan once",
            ratio=took_s / whole_s,
            goal=f"at most {CPU_GOAL_S:g} s",
            met=bool(reached_goal) and took_s <= CPU_GOAL_S,
            note=f"{runs} runs; {shrunk.after.faults} faults after {cpu_s:.0f} s and {shrunk.runs} "
            f"runs ({shrunk.end})",
        ),
    )
