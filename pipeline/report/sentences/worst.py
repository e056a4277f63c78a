"""The worst of a run: of each measure the fault after which it was longest."""

from dataclasses import dataclass

from pipeline.summary.figures import Distribution, FaultSummary, RunSummary
from pipeline.summary.outcomes import Coordinators, Owners


@dataclass(frozen=True, slots=True)
class Worst:
    """A measure after the fault that made it longest; never ending counts as longest."""

    fault: FaultSummary
    distribution: Distribution

    @property
    def longest_us(self) -> int:
        """The longest of all subjects that came back; 0 if none did."""
        return self.distribution.maximum or 0


def worst(summary: RunSummary, measure: str) -> Worst | None:
    """Return the worst of one measure over all faults; None: nothing was measured."""
    found = [
        Worst(fault, distribution)
        for fault in summary.faults
        if (distribution := fault.distribution(measure)) is not None
        and (distribution.samples or distribution.missing)
    ]
    return max(found, key=_badness, default=None)


def _badness(found: Worst) -> tuple[bool, int]:
    return found.distribution.missing > 0, found.longest_us


def longest_coordinators(summary: RunSummary) -> Coordinators | None:
    """Return the longest time in which a group had two coordinators."""
    return max(summary.coordinators, key=lambda both: both.to_us - both.from_us, default=None)


def longest_owners(summary: RunSummary) -> Owners | None:
    """Return the longest time in which partitions had two owners, beyond the clocks' error."""
    told = [owners for owners in summary.owners if owners.longest_us >= summary.clock_error_us]
    return max(told, key=lambda owners: owners.longest_us, default=None)


def rebalances_in(summary: RunSummary) -> int:
    """Return how many rebalances began after the first fault."""
    return sum(fault.rebalance_count for fault in summary.faults)
