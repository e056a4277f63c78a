"""The search for one planted bug.

Each seed draws a schedule, which is an experiment with its faults. The search has three steps:

1. Schedules are played with the bug, until a checker reports a violation. The same schedule must
   pass without the bug; otherwise the violation has another cause.
2. A few such schedules are collected. The one with the fewest faults before its violation is
   shrunk: faults and other parts are left out as long as the bug still shows. What is left must
   again pass without the bug.
3. If too many faults are left, another one of the collected schedules is shrunk.

All runs are in this process, because only here the bug is planted. The nodes do not check their own
invariants in these runs: a violated invariant makes a run BROKEN, without a finding that the
shrinker could look for.
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
"""The bug must be found within this number of seeds: the seeds 0 to 499."""
SCHEDULES = 6
"""Largest number of failing schedules that are collected, to find one with few faults
before their findings."""
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
"""Checkers that report a violation as soon as it happens. Other checkers, such as the checker of
ownership, report a violation only after a while."""
RUN_ON_AFTER_FINDING_US = 6_000_000
"""Time for which the runs of smaller schedules go on after the moment of the finding: 6 s. This
holds only for findings of the checkers in REPORTED_AT_ONCE."""
OTHER_SEEDS = 100
"""Number of other network seeds with which the shrunk schedule is played, to see how robust it is.
A network seed only draws the delays of messages."""
ROBUSTNESS_CPU_S = 45.0
"""CPU seconds from the beginning of the shrinking, after which no more network seeds are tried."""


class ShrunkBug(msgspec.Struct, frozen=True, kw_only=True):
    """The shrunk schedule that shows a bug."""

    before: Sizes
    after: Sizes
    faults: tuple[str, ...]
    """A line of text for each fault that is left."""
    runs: int
    cpu_s: float
    """The CPU time of the shrinking, without the runs with other network seeds."""
    end: str
    """The reason why the shrinking ended."""
    robust_fails: int
    """The number of other network seeds with which the schedule shows the bug, too."""
    robust_tried: int
    """The number of other network seeds with which the schedule was played."""
    passes_without_bug: bool
    """True if the schedule has no finding without the bug."""


class Hunted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the search for one bug."""

    bug: str
    seed: int | None
    """The first seed that fails only with the bug; None if there was none."""
    seeds_tried: int
    cpu_s: float
    """The CPU time until `seed` had failed."""
    fails_without_bug: int = 0
    """The number of seeds before `seed` that also failed without the bug, and so prove nothing."""
    checks: tuple[str, ...] = ()
    """The checkers that had findings in the run of `seed`."""
    summary: str = ""
    """The summary of the earliest finding in the run of `seed`."""
    shrunk_seed: int | None = None
    """The seed whose schedule was shrunk to `shrunk`."""
    tries: int = 0
    """The number of schedules that were shrunk. The last one is the schedule of `shrunk_seed`."""
    shrunk: ShrunkBug | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailingSchedule:
    """A schedule that fails only with the bug."""

    seed: int
    experiment: Experiment
    faults_before: int
    """The number of faults that were injected before the first finding."""
    findings: tuple[PlayedFinding, ...]
    fails_without_bug: int
    """The number of seeds before this seed that also failed without the bug."""
    cpu_s: float
    """The CPU time from the beginning of the search until this schedule had failed."""

    @property
    def first_finding(self) -> PlayedFinding:
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
    """Search the first `seeds` seeds of a space for a bug, and shrink the schedule that shows it.

    The shrunk schedule is also played with `other_seeds` other network seeds. Tests can replace
    `play_without_bug`, with which the search plays a schedule without the bug. `shrink_bug` does
    not use this function.
    """
    began_s = time.process_time()
    # A generator, which plays seeds only until it has the next schedule that is asked for.
    failing = _failing_schedules(bug, space, seeds, play_without_bug, began_s)
    first_failing = next(failing, None)
    if first_failing is None:
        cpu_s = time.process_time() - began_s
        return Hunted(bug=bug.name, seed=None, seeds_tried=seeds, cpu_s=cpu_s)
    hunted = Hunted(
        bug=bug.name,
        seed=first_failing.seed,
        seeds_tried=first_failing.seed + 1,
        cpu_s=first_failing.cpu_s,
        fails_without_bug=first_failing.fails_without_bug,
        checks=tuple(sorted({finding.signature.check for finding in first_failing.findings})),
        summary=first_failing.first_finding.summary,
    )
    if not shrinks:
        return hunted

    # More seeds are played only if `_promising` needs another schedule.
    schedules = _promising(chain([first_failing], failing))
    for tries, schedule in enumerate(islice(schedules, TRIES), 1):
        shrunk = shrink_bug(
            bug,
            space,
            schedule.experiment,
            schedule.seed,
            schedule.first_finding,
            other_seeds=other_seeds,
        )
        # The result of the last try is kept, even if the result of an earlier one was smaller.
        hunted = replace(hunted, shrunk_seed=schedule.seed, tries=tries, shrunk=shrunk)
        if shrunk.after.faults <= FAULTS_MAX and shrunk.passes_without_bug:
            break
    return hunted


def _promising(failing: Iterator[_FailingSchedule]) -> Iterator[_FailingSchedule]:
    """Yield failing schedules, those with few faults before their finding first.

    It takes time to find a schedule that fails. So a schedule with at most FEW_FAULTS faults is
    yielded as soon as it is found. If there is none, SCHEDULES schedules are collected, and the one
    with the fewest faults is yielded.
    """
    failing = islice(failing, SCHEDULES)
    # Schedules that were found and not yielded yet.
    waiting: list[_FailingSchedule] = []
    while True:
        while not any(schedule.faults_before <= FEW_FAULTS for schedule in waiting):
            another = next(failing, None)
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
        # A run that neither passes nor fails without the bug proves nothing either: it counts, too.
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
    # Checkers that are not in REPORTED_AT_ONCE may report long after the violation. So their runs
    # must last their whole time.
    limit_us = None  # on the clock of the run, as is `finding.time_us`
    if finding.signature.check in REPORTED_AT_ONCE:
        limit_us = finding.time_us + RUN_ON_AFTER_FINDING_US

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
        last_s=began_s + ROBUSTNESS_CPU_S,  # `shrinker.robustness` ends then
        base=base_experiment(space),  # the experiment from which the schedule was drawn
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
    """Return a fault as text: `12s: pause broker(0) for 5s`, for example."""
    lasts = "" if fault.duration is None else f" for {fault.duration}"
    # A fault of links has two sides instead of a target: `cut broker(0) from controller`.
    target = fault.target or f"{_ends(fault.from_)} from {_ends(fault.to)}"
    return f"{fault.at}: {fault.fault} {target}{lasts}"


def _ends(ends: str | tuple[str, ...] | None) -> str:
    """Return one side of a fault of links as text."""
    return ends if isinstance(ends, str) else ", ".join(ends or ())
