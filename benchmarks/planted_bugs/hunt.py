"""The search for one planted bug: seeds in order, until one fails only with the bug.

1. A broken promise is searched for. The nodes' own invariant checks are off, because such a failure
   cannot be shrunk.
2. Of the first few failing schedules, the one with the fewest faults before its failure is shrunk
   with the bug, as a person would choose; it must pass without the bug.
3. If too many faults are left, another schedule is shrunk.

Everything runs in this process, in which the bug is planted. Data flow: (PlantedBug, Space) -> draw
-> play -> Hunted.
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
"""Seeds 0 to 499: the number within which a bug must be found."""
SCHEDULES = 6
FEW_FAULTS = 10
"""Number of failing schedules that are collected.

One with few faults before the violation is enough, because later faults are removed at once.
"""
TRIES = 3
FAULTS_MAX = 3
"""Number of schedules that are shrunk, until one has few enough faults."""
SHRINK_CPU_S = 28.0
TOLD_AT_ONCE = frozenset({Fencing.name, Generations.name, NeedlessRebalance.name})
NO_LATER_US = 6_000_000
"""Checks that report at the time of the violation.

A smaller plan is not played to its end if it has no finding so much later than the whole plan.
*Ownership* reports later than the violation began.
"""
ROBUSTNESS_CPU_S = 45.0
OTHER_SEEDS = 100


class ShrunkBug(msgspec.Struct, frozen=True, kw_only=True):
    """The shrunk schedule that shows a bug.

    Shape: `faults` has one line for each. `passes_without_bug`: the same plan and seed have no
    finding in the code without the bug.
    Units: seconds of CPU, without the robustness.
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

    Shape: `seed` is the first that fails; None: none of `seeds_tried` does. `checks` and `summary`
    describe the failure. `shrunk_seed` is the one whose schedule became `shrunk`, the last of
    `tries` schedules. `fails_without_bug` counts seeds before it that also failed without the
    bug: they prove nothing.
    Units: seconds of CPU until `seed` had failed.
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
class _Caught:
    """A schedule that fails only with the bug; other fields as in Hunted.

    `faults_before`: the number of faults injected before it first failed.
    """

    seed: int
    experiment: Experiment
    faults_before: int
    findings: tuple[PlayedFinding, ...]
    fails_without_bug: int
    cpu_s: float

    @property
    def first(self) -> PlayedFinding:
        """Return its earliest finding."""
        return min(self.findings, key=lambda each: each.time_us)


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

    `play_without_bug` plays a schedule without the bug; the shrunk one is tried under
    `other_seeds` seeds.
    """
    began_s = time.process_time()
    caught = _catch(bug, space, seeds, play_without_bug, began_s)
    first = next(caught, None)
    if first is None:
        cpu_s = time.process_time() - began_s
        return Hunted(bug=bug.name, seed=None, seeds_tried=seeds, cpu_s=cpu_s)
    hunted = Hunted(
        bug=bug.name,
        seed=first.seed,
        seeds_tried=first.seed + 1,
        cpu_s=first.cpu_s,
        fails_without_bug=first.fails_without_bug,
        checks=tuple(sorted({each.signature.check for each in first.findings})),
        summary=first.first.summary,
    )
    if not shrinks:
        return hunted
    for tries, each in enumerate(islice(_promising(chain([first], caught)), TRIES), 1):
        shrunk = shrink_bug(
            bug, space, each.experiment, each.seed, each.first, other_seeds=other_seeds
        )
        hunted = replace(hunted, shrunk_seed=each.seed, tries=tries, shrunk=shrunk)
        if shrunk.after.faults <= FAULTS_MAX and shrunk.passes_without_bug:
            break
    return hunted


def _promising(caught: Iterator[_Caught]) -> Iterator[_Caught]:
    """Yield of a few schedules first those that failed after the fewest faults."""
    caught = islice(caught, SCHEDULES)
    waiting: list[_Caught] = []
    while True:
        while not any(each.faults_before <= FEW_FAULTS for each in waiting):
            another = next(caught, None)
            if another is None:
                break
            waiting.append(another)
        if not waiting:
            return
        least = min(waiting, key=lambda each: each.faults_before)
        waiting.remove(least)
        yield least


def _catch(
    bug: PlantedBug,
    space: Space,
    seeds: int,
    play_without_bug: Callable[[Experiment, int], PlayedRun],
    began_s: float,
) -> Iterator[_Caught]:
    """Yield, in order, the seeds that fail only with the bug."""
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
        first_us = min(each.time_us for each in played.findings) - (played.steady_us or 0)
        yield _Caught(
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
    """Shrink a schedule that shows `finding` with the bug planted."""
    at_once = finding.signature.check in TOLD_AT_ONCE
    limit_us = finding.time_us + NO_LATER_US if at_once else None

    def play_until(candidate: Experiment, at: int, signature: Signature) -> PlayedRun:
        with bug.planted():
            return play(
                candidate,
                at,
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
    """Return a fault in a few words, as in the file."""
    lasts = "" if fault.duration is None else f" for {fault.duration}"
    whom = fault.target or f"{_ends(fault.from_)} from {_ends(fault.to)}"
    return f"{fault.at}: {fault.fault} {whom}{lasts}"


def _ends(ends: str | tuple[str, ...] | None) -> str:
    return ends if isinstance(ends, str) else ", ".join(ends or ())
