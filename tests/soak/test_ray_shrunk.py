"""Split brains that were found in virtual time also happen to real processes on Ray.

A guard is a safety rule of Kafka, which an experiment can switch off to see what the rule prevents.
The search for bugs found plans of faults that lead to a split brain if one guard is off: two
coordinators act at the same time, which breaks a promise of Kafka. Each plan was then shrunk: made
smaller as long as it still broke the promise. Three of these shrunk plans run here on a local Ray,
where nodes are real processes. At least four of five runs of a plan must show the split brain. With
the guard on, no run may show it.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from protocol.config import Guards
from tests.support.soak import load_or_compute, say
from tests.support.worlds.acceptance import play_ray

pytestmark = [
    pytest.mark.soak,
    pytest.mark.ray,
    pytest.mark.timeout(1_800),
    pytest.mark.usefixtures("local_ray"),
]

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
RUNS = 5
SPLIT_BRAINS = (
    "paused_coordinator_goes_on_in_its_old_epoch",
    "two_coordinators_after_a_cut_from_the_controller",
    "commit_of_a_member_that_slept_through_a_rebalance",
)
"""Plans of tests/corpus that fail with nearly all latencies of the network."""
MUST_FAIL = 4
"""How many of the RUNS runs must fail without the guard. With the guard, no run may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkRun:
    """The saved result of one run of a shrunk plan."""

    outcome: str
    reasons: tuple[str, ...]
    # The names of the checks that have found a violation.
    violated: tuple[str, ...]
    # The text of the first finding; "" without a finding.
    summary: str = ""


@pytest.mark.parametrize("name", SPLIT_BRAINS)
def test_a_shrunk_split_brain_shows_on_real_processes_unless_its_guard_is_on(
    name: str, tmp_path: Path
) -> None:
    """At least 4 of 5 runs have the violation that the plan's file expects.

    With all guards on, no run has a violation.
    """
    experiment = load_experiment(str(CORPUS / f"{name}.yaml")).experiment
    # The field `expect` of a plan begins with the name of the check that the plan violates.
    check = experiment.expect.split()[0]
    # `Guards()` has all guards on.
    guarded = replace(experiment, cluster=replace(experiment.cluster, guards=Guards()))

    def runs(played: Experiment, kind: str) -> list[ShrunkRun]:
        """Play the experiment RUNS times, or load the runs that an interrupted soak has saved."""
        return [
            load_or_compute(
                "ray",
                f"{name}-{kind}-{number}",
                ShrunkRun,
                partial(run_shrunk, played, number, tmp_path / f"{kind}-{number}"),
            )
            for number in range(RUNS)
        ]

    without = runs(experiment, "unguarded")
    with_guard = runs(guarded, "guarded")
    failed = [run for run in without if check in run.violated]

    say(f"**{name}**: {check} violated in {len(failed)} of {RUNS} runs")
    say(f"with the guard on: in {sum(bool(run.violated) for run in with_guard)} of {RUNS}")
    if failed:
        say(f"for example: {failed[0].summary}")

    assert len(failed) >= MUST_FAIL, [(run.outcome, run.reasons) for run in without]
    assert [run.violated for run in with_guard] == [()] * RUNS
    assert [run.outcome for run in with_guard] == ["completed"] * RUNS


def run_shrunk(experiment: Experiment, number: int, run_dir: Path) -> ShrunkRun:
    """Run a plan on Ray, with `number` as its seed, and return what it violates."""
    run_dir.mkdir()
    results = play_ray(experiment, run_dir, seed=number, observers=[])
    findings = results.findings
    return ShrunkRun(
        outcome=results.outcome,
        reasons=results.reasons,
        violated=tuple(dict.fromkeys(finding.check for finding in findings)),
        summary=findings[0].summary if findings else "",
    )
