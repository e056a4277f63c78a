"""The nearest run that passes, beside one that does not: what made the difference?

First the same schedule with neighbouring network seeds: then it was a race. Else with faults left
out: then it was they. Everything else stays, so that the two traces can be held against each other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.run.plan import plan_of
from results_schema.manifest import Plan

NEIGHBOURS = 10
"""How many other network seeds are tried, and how many faults are left out one by one."""

Trying = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A run near another one. `how` says in words what is different."""

    how: str
    seed: int
    plan: Plan


def nearest_passing(
    experiment: Experiment, failed: PlayedRun, *, trying: Trying | None = None
) -> Neighbour | None:
    """Return the nearest run to `failed` that passes, None if nothing that was tried does.

    `trying` is told of each attempt.
    """
    for neighbour in _neighbours(experiment, failed):
        if trying is not None:
            trying(neighbour.how)
        played = play(experiment, neighbour.seed, plan=neighbour.plan)
        if played.result is PlayResult.PASS:
            return neighbour
    return None


def _neighbours(experiment: Experiment, failed: PlayedRun) -> Iterator[Neighbour]:
    plan = plan_of(experiment)
    for seed in range(failed.seed + 1, failed.seed + 1 + NEIGHBOURS):
        yield Neighbour(how=f"network seed {seed}", seed=seed, plan=plan)
    # What comes last before the finding is the likeliest cause of it.
    by_time = sorted(_before_finding(plan, failed), key=lambda fault: -fault.at_us)
    for fault in by_time[:NEIGHBOURS]:
        without = tuple(each for each in plan if each is not fault)
        yield Neighbour(how=f"without {fault.fault_id}", seed=failed.seed, plan=without)
    for count in range(2, len(by_time) + 1):
        left_out = by_time[:count]
        rest = tuple(each for each in plan if each not in left_out)
        how = f"without the last {count} faults before the finding"
        yield Neighbour(how=how, seed=failed.seed, plan=rest)


def _before_finding(plan: Plan, failed: PlayedRun) -> Plan:
    """Return the faults that were injected before the first finding; all, if that is not known."""
    if failed.steady_us is None or not failed.findings:
        return plan
    found_us = min(finding.time_us for finding in failed.findings) - failed.steady_us
    return tuple(fault for fault in plan if fault.at_us <= found_us) or plan
