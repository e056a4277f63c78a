"""Search for the passing run that is nearest to a failed one, to show the difference.

The command `diff` compares a failed run with a passing run that is as similar as possible. The
following runs are tried, in this order:

1. The same plan of faults with other network seeds. The network seed determines the latencies of
   messages. If one of these runs passes, a race made the difference.
2. The same seed without one of the faults that were injected before the finding (the violation in
   the failed run). Then the same seed without the last two of these faults, without the last
   three, and so on. If one of these runs passes, the missing faults are the cause.

Everything else stays equal. So the traces of the failed and the passing run can be compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.run.plan import plan_of
from results_schema.manifest import Plan

NEIGHBOURS = 10
"""Number of other network seeds to try, and maximum number of faults to leave out one at a time."""

AttemptObserver = Callable[[str], None]
"""Function that is called with a description of each attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A run near the failed run. `change` describes the difference between the two."""

    change: str
    seed: int
    plan: Plan


def nearest_passing(
    experiment: Experiment, failed: PlayedRun, *, trying: AttemptObserver | None = None
) -> Neighbour | None:
    """Return the passing run that is nearest to `failed`; None if every tried run fails.

    `trying` is called with a description of each attempt.
    """
    for neighbour in _neighbours(experiment, failed):
        if trying is not None:
            trying(neighbour.change)
        played = play(experiment, neighbour.seed, plan=neighbour.plan)
        if played.result is PlayResult.PASS:
            return neighbour
    return None


def _neighbours(experiment: Experiment, failed: PlayedRun) -> Iterator[Neighbour]:
    """Yield runs near the failed one, the nearest first."""
    plan = plan_of(experiment)
    for seed in range(failed.seed + 1, failed.seed + 1 + NEIGHBOURS):
        yield Neighbour(change=f"network seed {seed}", seed=seed, plan=plan)

    # The last faults before the finding come first, because they are the likeliest cause.
    latest_first = sorted(_before_finding(plan, failed), key=lambda fault: -fault.at_us)
    for fault in latest_first[:NEIGHBOURS]:
        rest = tuple(other for other in plan if other is not fault)
        yield Neighbour(change=f"without {fault.fault_id}", seed=failed.seed, plan=rest)
    # The loop above has left out one fault at a time, so this loop begins with the last two. It is
    # not limited by NEIGHBOURS. In its last round no fault before the finding is left.
    for count in range(2, len(latest_first) + 1):
        left_out = latest_first[:count]
        rest = tuple(fault for fault in plan if fault not in left_out)
        change = f"without the last {count} faults before the finding"
        yield Neighbour(change=change, seed=failed.seed, plan=rest)


def _before_finding(plan: Plan, failed: PlayedRun) -> Plan:
    """Return the faults that were injected before the first finding.

    If no fault was injected before the finding, or if the time of the finding is not known, return
    all faults.
    """
    if failed.steady_us is None or not failed.findings:
        return plan
    # A plan counts its times from the steady state, but the time of a finding counts from the
    # beginning of the run. `found_us` counts from the steady state, too.
    found_us = min(finding.time_us for finding in failed.findings) - failed.steady_us
    return tuple(fault for fault in plan if fault.at_us <= found_us) or plan
