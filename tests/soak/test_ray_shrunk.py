"""Three shrunk plans of the corpus, found in virtual time, on a local Ray.

A shrunk plan is a plan of faults that was made smaller as long as it still broke a promise. A guard
is a safety rule of Kafka's, which an experiment can switch off. Each of the three plans switches
one guard off, and shows a split brain: two coordinators act at the same time. On Ray, where nodes
are real processes, at least four of five runs must show the split brain. With the guard on, no run
may show it. Finished runs are kept, so that an interrupted soak continues.
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
"""Shrunk plans of tests/corpus that fail under nearly every network seed (draw of latencies)."""
MUST_FAIL = 4
"""Least number of the RUNS runs that must fail without the guard; with it, none may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkRun:
    """The kept result of one run of a shrunk plan. `violated` are the checks with a finding."""

    outcome: str
    reasons: tuple[str, ...]
    violated: tuple[str, ...]
    summary: str = ""


@pytest.mark.parametrize("name", SPLIT_BRAINS)
def test_a_shrunk_split_brain_shows_on_real_processes_unless_its_guard_is_on(
    name: str, tmp_path: Path
) -> None:
    """The file's violation is in at least 4 of 5 runs, and in none if all guards are on."""
    experiment = load_experiment(str(CORPUS / f"{name}.yaml")).experiment
    # A plan's `expect` begins with the name of the check that it violates.
    check = experiment.expect.split()[0]
    # By default all Guards are on.
    guarded = replace(experiment, cluster=replace(experiment.cluster, guards=Guards()))

    def runs(played: Experiment, kind: str) -> list[ShrunkRun]:
        return [
            load_or_compute(
                "ray",
                f"{name}-{kind}-{n}",
                ShrunkRun,
                partial(run_shrunk, played, n, tmp_path / f"{kind}-{n}"),
            )
            for n in range(RUNS)
        ]

    without, with_guard = runs(experiment, "unguarded"), runs(guarded, "guarded")
    failed = [run for run in without if check in run.violated]

    say(f"**{name}**: {check} violated in {len(failed)} of {RUNS} runs")
    say(f"with the guard on: in {sum(bool(run.violated) for run in with_guard)} of {RUNS}")
    if failed:
        say(f"for example: {failed[0].summary}")

    assert len(failed) >= MUST_FAIL, [(run.outcome, run.reasons) for run in without]
    assert [run.violated for run in with_guard] == [()] * RUNS
    assert [run.outcome for run in with_guard] == ["completed"] * RUNS


def run_shrunk(experiment: Experiment, number: int, run_dir: Path) -> ShrunkRun:
    """Run a plan on Ray as it is, and return what it violates."""
    run_dir.mkdir()
    results = play_ray(experiment, run_dir, seed=number, observers=[])
    findings = results.findings
    return ShrunkRun(
        outcome=results.outcome,
        reasons=results.reasons,
        violated=tuple(dict.fromkeys(finding.check for finding in findings)),
        summary=findings[0].summary if findings else "",
    )
