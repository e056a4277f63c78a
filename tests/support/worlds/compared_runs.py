"""Experiments in real time compared with the same files in virtual time, run by run.

For the soak: each run is reduced to milestones, kept, and compared. A runtime is a `Player`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import structs

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment, microseconds
from cluster.runtime import RowObserver
from protocol.trace import TraceRow
from results_schema.results import CheckOutcome, Results, Verdict
from tests.support.soak import remembered, say, say_failovers
from tests.support.worlds.acceptance import play_virtual
from tests.support.worlds.failover import Failover, failover_of
from tests.support.worlds.story import Milestones, differences, milestones_of, phases_of

GROUP = "orders-readers"
RUNS = 5
SHIFT_MS = 600
"""Delay of each run's faults, in even steps.

1. Together they cover an interval of the brokers' heartbeats (2 s) and one of the members' (3 s).
   Five random draws would not.
2. Nodes start together in real time, so they also do in the runs in virtual time.
"""
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

Player = Callable[[Experiment, Path, int, Sequence[RowObserver]], Results]
"""Plays an experiment with a seed into a directory that exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """The kept data of one run. `undecided` are checks that neither passed nor saw nothing."""

    verdict: str
    reasons: tuple[str, ...]
    undecided: tuple[str, ...]
    milestones: Milestones
    failover: Failover


def compare_with_virtual_time(part: str, name: str, play: Player, folder: Path) -> None:
    """Play an experiment RUNS times here and in virtual time; both must have the same milestones.

    Required: the same phases in the same order, those of a second or more within 20 % in the
    median.
    Effects: the record's lines; runs are kept as those of the soak's `part`.
    Raises: AssertionError.
    """
    here = [
        remembered(part, f"{name}-{part}-{n}", ComparedRun, partial(_run, name, n, play, folder))
        for n in range(RUNS)
    ]
    virtual = [
        remembered(part, f"{name}-virtual-{n}", ComparedRun, partial(_run_virtually, name, n))
        for n in range(RUNS)
    ]
    stories = [run.milestones for run in here]
    virtual_stories = [run.milestones for run in virtual]
    parted = differences(virtual_stories, stories)

    say(f"**{name}**: {sum(run.verdict == Verdict.PASS for run in here)} of {RUNS} passed")
    in_virtual_time = {(p.start, p.end): p.length_us for p in phases_of(virtual_stories)}
    for phase in phases_of(stories):
        virtual_us = in_virtual_time.get((phase.start, phase.end))
        beside = "" if virtual_us is None else f" (virtual time {virtual_us / 1e6:.2f} s)"
        say(f"{phase.start} -> {phase.end}: {phase.length_us / 1e6:.2f} s{beside}")
    say_failovers([run.failover for run in here])
    say(f"told otherwise in virtual time: {'; '.join(parted) or 'nothing'}")

    for run in (*here, *virtual):
        assert run.reasons == ()
        assert run.verdict == Verdict.PASS
        assert run.undecided == ()
    assert parted == []


def shifted(name: str, shift_ms: int) -> Experiment:
    """Return an experiment whose nodes start together, and whose plan is `shift_ms` later."""
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


def _run(name: str, number: int, play: Player, folder: Path) -> ComparedRun:
    """Run one experiment in real time, its faults a little later with each number."""
    experiment = shifted(name, number * SHIFT_MS)
    run_dir = folder / f"run-{number}"
    run_dir.mkdir()
    rows: list[TraceRow] = []
    return _compared(name, experiment, play(experiment, run_dir, number, [rows.append]), rows)


def _run_virtually(name: str, number: int) -> ComparedRun:
    """Run the same experiment in virtual time."""
    experiment = shifted(name, number * SHIFT_MS)
    run = play_virtual(experiment, seed=number)
    return _compared(name, experiment, run.results, run.rows)


def _compared(
    name: str, experiment: Experiment, results: Results, rows: Sequence[TraceRow]
) -> ComparedRun:
    return ComparedRun(
        verdict=results.verdict,
        reasons=results.reasons,
        undecided=_undecided(results),
        milestones=milestones_of(rows, experiment, GROUP),
        failover=failover_of(rows, experiment, GROUP, fault=MOVING_FAULT.get(name, 0)),
    )


def _undecided(results: Results) -> tuple[str, ...]:
    """Return the checks whose outcome is neither a pass nor that there was nothing to judge."""
    fine = {CheckOutcome.PASS, CheckOutcome.NOTHING_SEEN}
    return tuple(f"{r.check}: {r.note}" for r in results.checks if r.outcome not in fine)
