"""How fast runs with 12 to 1,000 members are, compared with real time.

The runs are of the experiment `coordinator_crash`, in which the coordinator of the group
`orders-readers` is killed. Each run is a command in a process of its own, as a user starts it. It
traces every message, makes all checks, writes the run directory, and computes the summary. There
are as many partitions as members.

The figure says how many seconds of the run's own clock pass in one CPU second. At 1 the run is as
fast as real time. The benchmark also prints an exponent. If it is 1, twice as many members need
twice as much CPU; if it is 2, they need four times as much.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import Measurement
from cluster.compiled import SWITCH
from scripts.compiled import build, missing_for_build

ROOT = Path(__file__).resolve().parent.parent
SIZES = (12, 100, 400, 1_000)
"""Numbers of members, and of partitions. The experiment itself has 12."""
GOALS = {400: 1.0}
"""Goal: with 400 members, a run is not slower than real time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One run, with the seconds of its own clock and of CPU."""

    members: int
    virtual_s: float
    cpu_s: float


def run() -> tuple[Measurement, ...]:
    """Measure SIZES.

    If there is a compiler, the modules that take most of the time are compiled first.
    """
    missing = missing_for_build()
    if missing is None:
        build()
    else:
        print(f"interpreted: {missing}")
    runs = [play(members, compiled=missing is None) for members in SIZES]
    smallest, largest = runs[0], runs[-1]
    growth = (largest.cpu_s / largest.virtual_s) / (smallest.cpu_s / smallest.virtual_s)
    # growth = (growth of the members) ** exponent
    exponent = math.log(growth) / math.log(largest.members / smallest.members)
    code = "compiled" if missing is None else "interpreted"
    print(
        f"CPU for a virtual second grows with the {exponent:.2f}th power of the members, from "
        f"{smallest.members} to {largest.members:,} ({code})"
    )
    return tuple(_measurement(played) for played in runs)


def play(members: int, *, compiled: bool) -> Played:
    """Run the experiment with this many members and partitions. Raises: RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="coordlab-bench-") as folder:
        before_s = _children_s()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "coordlab",
                "run",
                "coordinator_crash",
                "--runtime=virtual",
                "--json",
                f"--runs={folder}",
                f"--var=groups.orders-readers.members={members}",
                f"--var=topics.orders.partitions={members}",
            ],
            cwd=ROOT,
            env={**os.environ, SWITCH: "1" if compiled else "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        cpu_s = _children_s() - before_s
    if done.returncode != 0:
        raise RuntimeError(f"{members} members: exit code {done.returncode}\n{done.stderr}")
    ended_us = json.loads(done.stdout)["results"]["ended_at_us"]
    return Played(members=members, virtual_s=ended_us / 1e6, cpu_s=cpu_s)


def _children_s() -> float:
    """Return the sum of the CPU seconds of all child processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measurement(played: Played) -> Measurement:
    """Return the speed of a run, compared with real time."""
    speed = played.virtual_s / played.cpu_s
    goal = GOALS.get(played.members)
    return Measurement(
        name=f"coordinator_crash, {played.members:,} members and partitions",
        value=speed,
        baseline=1.0,
        unit="s/s",
        baseline_name="real time",
        ratio=speed,
        goal="" if goal is None else f"at least {goal:g}",
        met=None if goal is None else speed >= goal,
        note=f"{played.cpu_s:.0f} s of CPU for {played.virtual_s:.0f} s of the run's clock",
    )
