"""Every experiment with Kafka's real default timeouts on a local Ray, five runs each.

Each is told as milestones and held against five runs of the same file in virtual time; the figures
of its failover are those of docs/kafka/MEASURED_FAILOVER.md, in the same order, so that both can
be read side by side. A run that is done is remembered: an interrupted soak goes on where it was.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment, microseconds
from protocol.trace import TraceRow
from results_schema.results import CheckOutcome, Results, Verdict
from tests.support.soak import remembered, say, say_failovers
from tests.support.worlds.acceptance import play_ray, play_virtual
from tests.support.worlds.failover import Failover, failover_of
from tests.support.worlds.story import Milestones, differences, milestones_of, phases_of

pytestmark = [
    pytest.mark.soak,
    pytest.mark.ray,
    pytest.mark.timeout(1_800),
    pytest.mark.usefixtures("local_ray"),
]

GROUP = "orders-readers"
RUNS = 5
SHIFT_MS = 600
"""Each run's faults fire this much later: together they spread evenly over an interval of the
brokers' heartbeats (2 s) and over one of the members' (3 s). Five draws would not; and as processes
on Ray start together, the runs in virtual time that they are held against do."""
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


def shifted(name: str, shift_ms: int) -> Experiment:
    """Return an experiment whose nodes start together, and everything planned `shift_ms` later."""
    experiment = load_experiment(name, ("cluster.starts=together",)).experiment

    def later(at: str) -> str:
        return f"{microseconds(at) // 1_000 + shift_ms}ms"

    return structs.replace(
        experiment,
        faults=tuple(structs.replace(fault, at=later(fault.at)) for fault in experiment.faults),
        groups={
            group_id: structs.replace(
                group,
                late_members=tuple(
                    structs.replace(late, at=later(late.at)) for late in group.late_members
                ),
            )
            for group_id, group in experiment.groups.items()
        },
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
