"""The search for one planted bug: seeds in order, until one fails only with the bug.

Each seed draws a schedule: an experiment with its faults. The search goes on in three steps:

1. Seeds are played with the bug, until a checker reports a violation. The same seed is then played
   without the bug, and must pass. Otherwise the violation has another cause.
2. A few such schedules are collected. The one with the fewest faults before its violation is
   shrunk: faults and other parts are left out as long as the bug still shows. What is left must
   pass without the bug.
3. If too many faults are left, another one of the collected schedules is shrunk.

All runs are in this process, because only here the bug is planted. The nodes' own invariant checks
are off, because their failures cannot be shrunk.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import msgspec
from msgspec.structs import replace

from benchmarks.planted_bugs.planted_bug import PlantedBug
from chaos.checkers.fencing import Fencing
from chaos.checkers.generations import Generations
from chaos.checkers.needless_rebalance import NeedlessRebalance
from chaos.experiment.structs import Experiment, FaultDefinition, microseconds
from chaos.exploration.draw.draw import draw
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult, play
from chaos.exploration.shrink.edits import Sizes
from chaos.exploration.shrink.shrink import Shrinker
from chaos.exploration.signature import Signature
from chaos.exploration.space import Space, base_experiment

SEEDS = 500
"""The bug must be found within this number of seeds, which are 0 to 499."""
SCHEDULES = 6
"""Largest number of failing schedules that are collected, to find one with few faults."""
FEW_FAULTS = 10
"""If a schedule has at most this many faults before its finding, no more schedules are collected.

Faults after the finding do not matter, because the shrinker removes them in its first step.
"""
TRIES = 3
"""Largest number of schedules that are shrunk."""
FAULTS_MAX = 3
"""If at most this many faults are left in a shrunk schedule, no other one is shrunk."""
SHRINK_CPU_S = 28.0
"""CPU seconds after which the shrinking of one schedule ends."""
REPORTED_AT_ONCE = frozenset({Fencing.name, Generations.name, NeedlessRebalance.name})
"""Checkers that report a violation as soon as it happens. The checker of ownership waits first."""
RUN_ON_AFTER_FINDING_US = 6_000_000
"""A run of a smaller plan ends this long after the time of the whole plan's finding. This limit is
used only for findings of checkers in REPORTED_AT_ONCE."""
ROBUSTNESS_CPU_S = 45.0
"""CPU seconds from the beginning of the shrinking, after which no more network seeds are tried."""
OTHER_SEEDS = 100
"""Number of other network seeds with which the shrunk schedule is played, to see how robust it
is."""


class ShrunkBug(msgspec.Struct, frozen=True, kw_only=True):
    """The shrunk schedule that shows a bug.

    - `faults`: a line of text for each fault.
    - `cpu_s`: seconds of CPU, without those for the robustness.
    - `end`: the reason why the shrinking ended.
    - `robust_tried`: number of other network seeds that were tried; `robust_fails`: number of those
      that also show the bug.
    - `passes_without_bug`: True if the same plan and seed have no finding without the bug.
    """

    before: Sizes
    after: Sizes
    faults: tuple[str, ...]
    runs: int
    cpu_s: float
    end: str
    robust_fails: int
    robust_tried: int
    passes_without_bug: bool


class Hunted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the search for one bug.

    - `seed`: the first seed that fails only with the bug; None if none of `seeds_tried` does.
    - `cpu_s`: seconds of CPU until `seed` had failed.
    - `fails_without_bug`: number of seeds before `seed` that also failed without the bug, and so
      prove nothing.
    - `checks`, `summary`: the checkers with findings of `seed`, and the summary of the first
      finding.
    - `shrunk`: the shrunk schedule of `shrunk_seed`. This seed had the last of `tries` schedules
      that were shrunk.
    """

    bug: str
    seed: int | None
    seeds_tried: int
    cpu_s: float
    fails_without_bug: int = 0
    checks: tuple[str, ...] = ()
    summary: str = ""
    shrunk_seed: int | None = None
    tries: int = 0
    shrunk: ShrunkBug | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailingSchedule:
    """A schedule that fails only with the bug.

    - `faults_before`: the number of faults that were injected before its first finding.
    - `fails_without_bug`: the number of seeds before it that also failed without the bug.
    - `cpu_s`: seconds of CPU from the beginning of the search until the schedule had failed.
    """

    seed: int
    experiment: Experiment
    faults_before: int
    findings: tuple[PlayedFinding, ...]
    fails_without_bug: int
    cpu_s: float

    @property
    def first(self) -> PlayedFinding:
        """Return the schedule's earliest finding."""
        return min(self.findings, key=lambda finding: finding.time_us)


def hunt(
    bug: PlantedBug,
    space: Space,
    *,
    seeds: int = SEEDS,
    shrinks: bool = True,
    other_seeds: int = OTHER_SEEDS,
    play_without_bug: Callable[[Experiment, int], PlayedRun] = play,
) -> Hunted:
    """Search the first `seeds` seeds of `space` for `bug`, and shrink the schedule.

    `play_without_bug` plays a schedule without the bug. `other_seeds` is the number of other
    network seeds with which the shrunk schedule is tried; a network seed only draws the delays of
    messages.
    """
    began_s = time.process_time()
    # `_failing_schedules` is a generator: it plays seeds only until its caller has the next
    # schedule.
    caught = _failing_schedules(bug, space, seeds, play_without_bug, began_s)
    first_caught = next(caught, None)
    if first_caught is None:
        cpu_s = time.process_time() - began_s
        return Hunted(bug=bug.name, seed=None, seeds_tried=seeds, cpu_s=cpu_s)
    hunted = Hunted(
        bug=bug.name,
        seed=first_caught.seed,
        seeds_tried=first_caught.seed + 1,
        cpu_s=first_caught.cpu_s,
        fails_without_bug=first_caught.fails_without_bug,
        checks=tuple(sorted({finding.signature.check for finding in first_caught.findings})),
        summary=first_caught.first.summary,
    )
    if not shrinks:
        return hunted

    # More seeds are played only if `_promising` needs another schedule.
    schedules = _promising(chain([first_caught], caught))
    for tries, schedule in enumerate(islice(schedules, TRIES), 1):
        shrunk = shrink_bug(
            bug,
            space,
            schedule.experiment,
            schedule.seed,
            schedule.first,
            other_seeds=other_seeds,
        )
        hunted = replace(hunted, shrunk_seed=schedule.seed, tries=tries, shrunk=shrunk)
        if shrunk.after.faults <= FAULTS_MAX and shrunk.passes_without_bug:
            break
    return hunted


def _promising(caught: Iterator[_FailingSchedule]) -> Iterator[_FailingSchedule]:
    """Yield the schedules, those with few faults before their finding first.

    To collect a schedule takes time, because seeds must be played. So no more are collected than
    necessary: as soon as one of them has at most FEW_FAULTS faults, it is yielded. If none has, the
    best of SCHEDULES schedules is yielded.
    """
    caught = islice(caught, SCHEDULES)
    # Schedules that were collected and not yielded yet.
    waiting: list[_FailingSchedule] = []
    while True:
        while not any(schedule.faults_before <= FEW_FAULTS for schedule in waiting):
            another = next(caught, None)
            if another is None:
                break
            waiting.append(another)
        if not waiting:
            return
        with_fewest = min(waiting, key=lambda schedule: schedule.faults_before)
        waiting.remove(with_fewest)
        yield with_fewest


def _failing_schedules(
    bug: PlantedBug,
    space: Space,
    seeds: int,
    play_without_bug: Callable[[Experiment, int], PlayedRun],
    began_s: float,
) -> Iterator[_FailingSchedule]:
    """Yield the seeds that fail only with the bug, in order."""
    fails_without_bug = 0
    for seed in range(seeds):
        experiment = draw(space, seed)
        with bug.planted():
            played = play(experiment, seed, invariants_every=None)
        if played.result is not PlayResult.VIOLATED:
            continue
        if play_without_bug(experiment, seed).result is not PlayResult.PASS:
            fails_without_bug += 1
            continue
        # The times of the plan's faults count from the steady state of the run. So must the time of
        # the first finding. A run without a steady state injects no fault.
        first_us = min(finding.time_us for finding in played.findings) - (played.steady_us or 0)
        yield _FailingSchedule(
            seed=seed,
            experiment=experiment,
            faults_before=sum(microseconds(fault.at) <= first_us for fault in experiment.faults),
            findings=played.findings,
            fails_without_bug=fails_without_bug,
            cpu_s=time.process_time() - began_s,
        )


def shrink_bug(
    bug: PlantedBug,
    space: Space,
    experiment: Experiment,
    seed: int,
    finding: PlayedFinding,
    *,
    other_seeds: int,
) -> ShrunkBug:
    """Shrink a schedule that shows `finding` with the bug planted.

    `other_seeds` is the number of network seeds with which the shrunk schedule is played.
    """
    # A checker of REPORTED_AT_ONCE reports a violation when it happens, so a run can end soon after
    # that time. Other checkers may report long after the violation, so their runs need their whole
    # time.
    is_reported_at_once = finding.signature.check in REPORTED_AT_ONCE
    limit_us = finding.time_us + RUN_ON_AFTER_FINDING_US if is_reported_at_once else None

    def play_until(candidate: Experiment, network_seed: int, signature: Signature) -> PlayedRun:
        with bug.planted():
            return play(
                candidate,
                network_seed,
                stop_at=signature,
                time_limit_us=limit_us,
                invariants_every=None,
            )

    began_s = time.process_time()
    shrinker = Shrinker(
        play_until,
        now_s=time.process_time,
        deadline_s=began_s + SHRINK_CPU_S,
        last_s=began_s + ROBUSTNESS_CPU_S,
        base=base_experiment(space),
    )
    shrunk = shrinker.shrink(experiment, seed, finding.signature)
    cpu_s = time.process_time() - began_s
    robustness = shrinker.robustness(shrunk, other_seeds)
    return ShrunkBug(
        before=shrunk.before,
        after=shrunk.after,
        faults=tuple(fault_text(fault) for fault in shrunk.experiment.faults),
        runs=shrunk.runs,
        cpu_s=cpu_s,
        end=shrunk.end.value,
        robust_fails=robustness.fails,
        robust_tried=robustness.tried,
        passes_without_bug=not play(shrunk.experiment, shrunk.seed).findings,
    )


def fault_text(fault: FaultDefinition) -> str:
    """Return time, kind, target and duration of a fault as text."""
    lasts = "" if fault.duration is None else f" for {fault.duration}"
    # A fault of links has two sides instead of a target: `cut broker(0) from controller`.
    target = fault.target or f"{_ends(fault.from_)} from {_ends(fault.to)}"
    return f"{fault.at}: {fault.fault} {target}{lasts}"


def _ends(ends: str | tuple[str, ...] | None) -> str:
    """Return one side of a fault of links as text."""
    return ends if isinstance(ends, str) else ", ".join(ends or ())
