"""Checks that the cluster does not do more for the same faults than it once did.

The effort of a run is how often the cluster did things: rebalances, truncations of logs, requests
of each API. If a change of the code makes these counts grow, something may be wrong.

So seeds 0 to 99 of explorations/standard.yaml are played. Each run is compared with the recorded
counts of the same seed, for which the cluster and the faults were the same. A count has grown if
both of these hold:

1. Its sum over the runs is more than GROWN_RATIO times the recorded sum.
2. The mean difference between a run and the recorded run is more than SURE_STANDARD_ERRORS standard
   errors above zero.

`python -m benchmarks.effort --record` writes a new record. This is needed after a change of the
space, and after a change of the code that is meant to change the effort of runs.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.measurement import Measurement, commit
from chaos.exploration.batches import play_seed
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.space import load_space

SEEDS = 100
"""Number of runs: the seeds 0 to 99 are played."""
GROWN_RATIO = 1.03
"""A sum has grown only if it is more than 3 % larger than the recorded sum."""
SURE_STANDARD_ERRORS = 3.0
"""If the mean difference is at most three standard errors, it may be chance."""
RECORD = Path(__file__).with_name("effort_recorded.json")
SPACE = "standard"


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded effort."""

    commit: str
    counts: dict[str, list[int]]
    """Each count has a number for each seed: `{"rebalances": [4, 7, 3, ...], ...}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One count, now and as recorded."""

    name: str
    now: int
    """The sum over all runs."""
    recorded: int
    """The recorded sum."""
    standard_errors: float
    """The mean difference between a run and the recorded run, in standard errors."""

    @property
    def has_grown(self) -> bool:
        """True if the count has grown, by both rules of the module's docstring."""
        return (
            self.now > GROWN_RATIO * self.recorded and self.standard_errors > SURE_STANDARD_ERRORS
        )


def counts_of(runs: Sequence[PlayedRun]) -> dict[str, list[int]]:
    """Return the counts of all runs: `{"rebalances": [4, 7, 3, ...], ...}`."""
    counts_by_run = [{**played.effort, **_requests(played)} for played in runs]
    # A run has only the counts of things that happened in it. A missing count is 0.
    names = sorted({name for counts in counts_by_run for name in counts})
    return {name: [counts.get(name, 0) for counts in counts_by_run] for name in names}


def compare(
    now: Mapping[str, Sequence[int]], recorded: Mapping[str, Sequence[int]]
) -> list[Change]:
    """Return the change of each count, the most significant growth first."""
    return sorted(
        (
            # If one side does not have a count, the count was 0 in each of its runs.
            _change(name, now.get(name, [0] * SEEDS), recorded.get(name, [0] * SEEDS))
            for name in now.keys() | recorded.keys()
        ),
        key=lambda change: (-change.standard_errors, change.name),
    )


def run() -> tuple[Measurement, ...]:
    """Play the seeds, compare with the record, and print every change."""
    recorded = msgspec.json.decode(RECORD.read_bytes(), type=Recorded)
    changes = compare(counts_of(_play_all()), recorded.counts)
    grown = [change.name for change in changes if change.has_grown]
    # If no count has grown, the one with the largest ratio is named. A recorded 0 counts as 1, so
    # that there is a ratio.
    worst = max(changes, key=lambda change: change.now / max(change.recorded, 1))
    for change in changes:
        ratio = change.now / change.recorded if change.recorded else math.nan
        print(
            f"{change.name:32} {change.now:>9,} recorded {change.recorded:>9,}  "
            f"ratio {ratio:5.3f}  {change.standard_errors:+6.1f} standard errors"
        )
    return (
        Measurement(
            name=f"counts that have grown in {SEEDS} runs",
            value=float(len(grown)),
            unit="counts",
            baseline=float(len(changes)),
            baseline_name=f"all, recorded at {recorded.commit}",
            ratio=len(grown) / len(changes),
            goal="none",
            met=not grown,
            note=", ".join(grown) or f"largest ratio: {worst.name}",
        ),
    )


def _requests(played: PlayedRun) -> dict[str, int]:
    """Return how many requests of each API a run had: `{"requests Fetch": 812, ...}`."""
    return {f"requests {api}": count for api, count in played.requests.items()}


def _change(name: str, now: Sequence[int], recorded: Sequence[int]) -> Change:
    """Return the change of one count; `now` and `recorded` have a number for each seed."""
    differences = [new - old for new, old in zip(now, recorded, strict=True)]
    mean = statistics.fmean(differences)
    standard_error = statistics.stdev(differences) / math.sqrt(len(differences))
    if mean == 0:
        standard_errors = 0.0
    elif standard_error:
        standard_errors = mean / standard_error
    else:
        # All differences are equal, and not 0. That cannot be chance.
        standard_errors = math.copysign(math.inf, mean)
    return Change(name=name, now=sum(now), recorded=sum(recorded), standard_errors=standard_errors)


def _play_all() -> list[PlayedRun]:
    """Play all seeds.

    Raises: RuntimeError if a run does not pass, because a failure changes the effort.
    """
    space = load_space(SPACE)
    runs = [play_seed(space, seed) for seed in range(SEEDS)]
    failed = [played.seed for played in runs if played.result is not PlayResult.PASS]
    if failed:
        raise RuntimeError(f"seeds {failed} of {SPACE} do not pass: nothing is compared")
    return runs


def main() -> None:
    """Write a new record."""
    parser = argparse.ArgumentParser(description="Records the effort of explored runs.")
    parser.add_argument("--record", action="store_true", required=True, help="write a new record")
    parser.parse_args()
    record = Recorded(commit=commit(), counts=counts_of(_play_all()))
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=0) + b"\n")
    print(f"recorded {len(record.counts)} counts of {SEEDS} runs")


if __name__ == "__main__":
    main()
