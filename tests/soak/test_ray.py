"""Every experiment with Kafka's real default timeouts on a local Ray, five runs each.

And three plans of the corpus that the search found in virtual time and shrank: each shows its split
brain on real processes as it is, and with its guard on it does not.

Each is told as milestones and held against five runs of the same file in virtual time; the figures
of its failover are those of MEASURED_FAILOVER.md's table, in its order, so that the two can be read
side by side. A run that is done is remembered: an interrupted soak goes on where it was.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from chaos.checkers.base import CheckOutcome
from chaos.experiment import Experiment
from chaos.loader import load_experiment
from chaos.verdict import Results, Verdict
from protocol.config import Guards
from protocol.trace import TraceRow
from tests.support.acceptance import play_ray, play_virtual, shifted
from tests.support.failover import Failover, failover_of
from tests.support.soak import remembered, say, say_failovers
from tests.support.story import Milestones, differences, milestones_of, phases_of

pytestmark = [
    pytest.mark.soak,
    pytest.mark.ray,
    pytest.mark.timeout(1_800),
    pytest.mark.usefixtures("local_ray"),
]

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
GROUP = "orders-readers"
RUNS = 5
SHIFT_MS = 600
"""Each run's faults fire this much later: together they spread evenly over an interval of the
brokers' heartbeats (2 s) and over one of the members' (3 s)."""
EXPERIMENTS = (
    "coordinator_crash",
    "coordinator_crash_static",
    "graceful_move",
    "rolling_restart",
    "member_crash",
    "pause_coordinator",
    "split_network",
    "split_brain_ownership",
    "split_brain_generations",
)
MOVING_FAULT = {"rolling_restart": 2}
"""The fault that hits the group's coordinator, where it is not the first."""


SPLIT_BRAINS = (
    "paused_coordinator_goes_on_in_its_old_epoch",
    "two_coordinators_after_a_cut_from_the_controller",
    "commit_of_a_member_that_slept_through_a_rebalance",
)
"""Shrunk plans of tests/corpus that need no luck: they fail under nearly every network seed."""
MUST_FAIL = 4
"""Of RUNS runs on Ray without the guard; with it, none may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkRun:
    """What is kept of one run of a shrunk plan. `violated` are the checks with a finding."""

    outcome: str
    reasons: tuple[str, ...]
    violated: tuple[str, ...]
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRun:
    """What is kept of one run. `undecided` are the checks that neither passed nor saw nothing."""

    verdict: str
    reasons: tuple[str, ...]
    undecided: tuple[str, ...]
    milestones: Milestones
    failover: Failover


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_five_runs_tell_the_story_that_virtual_time_tells(name: str, tmp_path: Path) -> None:
    """The same phases in the same order, those of a second or more within 20 % in the median."""
    on_ray = [
        remembered(
            "ray",
            f"{name}-ray-{n}",
            ToldRun,
            partial(run_on_ray, name, n, tmp_path / f"run-{n}"),
        )
        for n in range(RUNS)
    ]
    virtual = [
        remembered("ray", f"{name}-virtual-{n}", ToldRun, partial(run_virtually, name, n))
        for n in range(RUNS)
    ]
    ray_stories = [run.milestones for run in on_ray]
    virtual_stories = [run.milestones for run in virtual]
    parted = differences(virtual_stories, ray_stories)

    say(f"**{name}**: {sum(run.verdict == Verdict.PASS for run in on_ray)} of {RUNS} passed")
    in_virtual_time = {(p.start, p.end): p.length_us for p in phases_of(virtual_stories)}
    for phase in phases_of(ray_stories):
        virtual_us = in_virtual_time.get((phase.start, phase.end))
        beside = "" if virtual_us is None else f" (virtual time {virtual_us / 1e6:.2f} s)"
        say(f"{phase.start} -> {phase.end}: {phase.length_us / 1e6:.2f} s{beside}")
    say_failovers([run.failover for run in on_ray])
    say(f"told otherwise in virtual time: {'; '.join(parted) or 'nothing'}")

    for run in (*on_ray, *virtual):
        assert run.reasons == ()
        assert run.verdict == Verdict.PASS
        assert run.undecided == ()
    assert parted == []


@pytest.mark.parametrize("name", SPLIT_BRAINS)
def test_a_shrunk_split_brain_shows_on_real_processes_unless_its_guard_is_on(
    name: str, tmp_path: Path
) -> None:
    """The file unchanged: its violation in at least 4 of 5 runs, in none with all guards on."""
    experiment = load_experiment(str(CORPUS / f"{name}.yaml")).experiment
    check = experiment.expect.split()[0]
    guarded = replace(experiment, cluster=replace(experiment.cluster, guards=Guards()))

    def runs(of: Experiment, kind: str) -> list[ShrunkRun]:
        return [
            remembered(
                "ray",
                f"{name}-{kind}-{n}",
                ShrunkRun,
                partial(run_shrunk, of, n, tmp_path / f"{kind}-{n}"),
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
    """Run a shrunk plan on Ray as it stands."""
    run_dir.mkdir()
    results = play_ray(experiment, run_dir, seed=number, observers=[])
    findings = results.findings
    return ShrunkRun(
        outcome=results.outcome,
        reasons=results.reasons,
        violated=tuple(dict.fromkeys(finding.check for finding in findings)),
        summary=findings[0].summary if findings else "",
    )


def run_on_ray(name: str, number: int, run_dir: Path) -> ToldRun:
    """Run one experiment on Ray, its faults a little later with each number."""
    experiment = shifted(name, number * SHIFT_MS)
    run_dir.mkdir()
    rows: list[TraceRow] = []
    results = play_ray(experiment, run_dir, seed=number, observers=[rows.append])
    return ToldRun(
        verdict=results.verdict,
        reasons=results.reasons,
        undecided=undecided(results),
        milestones=milestones_of(rows, experiment, GROUP),
        failover=failover_of(rows, experiment, GROUP, fault=MOVING_FAULT.get(name, 0)),
    )


def run_virtually(name: str, number: int) -> ToldRun:
    """Run the same in virtual time."""
    experiment = shifted(name, number * SHIFT_MS)
    run = play_virtual(experiment, seed=number)
    return ToldRun(
        verdict=run.results.verdict,
        reasons=run.results.reasons,
        undecided=undecided(run.results),
        milestones=milestones_of(run.rows, experiment, GROUP),
        failover=failover_of(run.rows, experiment, GROUP, fault=MOVING_FAULT.get(name, 0)),
    )


def undecided(results: Results) -> tuple[str, ...]:
    """Return the checks whose outcome is neither a pass nor that there was nothing to judge."""
    fine = {CheckOutcome.PASS, CheckOutcome.NOTHING_SEEN}
    return tuple(f"{r.check}: {r.note}" for r in results.checks if r.outcome not in fine)
