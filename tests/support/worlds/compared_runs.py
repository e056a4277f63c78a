"""Compares runs of an experiment in real time with runs of the same file in virtual time.

Virtual time is a run's own simulated clock. The soak (tests that take hours) uses this module for
each runtime in real time. The milestones of a run are events of its group, with their times after
the fault. The module plays all runs, and then compares their milestones.

The data of a run are saved in a file, so that an interrupted soak continues where it ended:
`load_or_compute` returns the saved result of a key, or computes and saves it.
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
from tests.support.soak import load_or_compute, say, say_failovers
from tests.support.worlds.acceptance import play_virtual
from tests.support.worlds.failover import Failover, failover_of
from tests.support.worlds.story import Milestones, differences, milestones_of, phases_of

GROUP = "orders-readers"
RUNS = 5
"""Number of runs of each experiment, in real time and again in virtual time."""
SHIFT_MS = 600
"""The faults of run n are n x 600 ms late: 0 to 2.4 s for five runs.

How long a fault takes to be noticed depends on the time since the last heartbeat. These delays
cover an interval of the brokers' heartbeats (2 s) and most of an interval of the members'
heartbeats (3 s). Five random delays might all be alike.
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
"""Index of the fault that hits the group's coordinator. In the other experiments it is 0."""

Player = Callable[[Experiment, Path, int, Sequence[RowObserver]], Results]
"""Plays an experiment with a seed into a directory that exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """The saved data of one run.

    `undecided` are the checks that had something to judge and did not pass.
    """

    verdict: str
    reasons: tuple[str, ...]
    undecided: tuple[str, ...]
    milestones: Milestones
    failover: Failover


def compare_with_virtual_time(part: str, name: str, play: Player, folder: Path) -> None:
    """Play an experiment RUNS times with `play` and RUNS times in virtual time, and compare them.

    Both must have the same phases in the same order. The median length of a phase of a second or
    more may differ by 20 %.

    part: the part of the soak, under whose name the runs are saved.
    play: plays an experiment in real time.
    Effects: prints the lines that docs/SOAK.md records.
    Raises: AssertionError if the runs differ, or if one of them did not pass.
    """
    real = [
        load_or_compute(
            part, f"{name}-{part}-{number}", ComparedRun, partial(_run, name, number, play, folder)
        )
        for number in range(RUNS)
    ]
    virtual = [
        load_or_compute(
            part, f"{name}-virtual-{number}", ComparedRun, partial(_run_virtually, name, number)
        )
        for number in range(RUNS)
    ]
    real_milestones = [run.milestones for run in real]
    virtual_milestones = [run.milestones for run in virtual]
    different = differences(virtual_milestones, real_milestones)

    say(f"**{name}**: {sum(run.verdict == Verdict.PASS for run in real)} of {RUNS} passed")
    in_virtual_time = {
        (phase.start, phase.end): phase.length_us for phase in phases_of(virtual_milestones)
    }
    for phase in phases_of(real_milestones):
        virtual_us = in_virtual_time.get((phase.start, phase.end))
        beside = "" if virtual_us is None else f" (virtual time {virtual_us / 1e6:.2f} s)"
        say(f"{phase.start} -> {phase.end}: {phase.length_us / 1e6:.2f} s{beside}")
    say_failovers([run.failover for run in real])
    say(f"told otherwise in virtual time: {'; '.join(different) or 'nothing'}")

    for run in (*real, *virtual):
        assert run.reasons == ()
        assert run.verdict == Verdict.PASS
        assert run.undecided == ()
    assert different == []


def shifted(name: str, shift_ms: int) -> Experiment:
    """Return an experiment with all times of its plan `shift_ms` later.

    The nodes start together, as they do in real time.
    """
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
    """Run one experiment in real time, with its faults `number` x SHIFT_MS later."""
    experiment = shifted(name, number * SHIFT_MS)
    run_dir = folder / f"run-{number}"
    run_dir.mkdir()
    rows: list[TraceRow] = []
    results = play(experiment, run_dir, number, [rows.append])  # the number is also the seed
    return _compared(name, experiment, results, rows)


def _run_virtually(name: str, number: int) -> ComparedRun:
    """Run the same experiment in virtual time."""
    experiment = shifted(name, number * SHIFT_MS)
    run = play_virtual(experiment, seed=number)
    return _compared(name, experiment, run.results, run.rows)


def _compared(
    name: str, experiment: Experiment, results: Results, rows: Sequence[TraceRow]
) -> ComparedRun:
    """Return the data of a finished run that is saved."""
    return ComparedRun(
        verdict=results.verdict,
        reasons=results.reasons,
        undecided=_undecided(results),
        milestones=milestones_of(rows, experiment, GROUP),
        failover=failover_of(rows, experiment, GROUP, fault=MOVING_FAULT.get(name, 0)),
    )


def _undecided(results: Results) -> tuple[str, ...]:
    """Return the checks that had something to judge and did not pass."""
    decided = {CheckOutcome.PASS, CheckOutcome.NOTHING_SEEN}
    return tuple(
        f"{report.check}: {report.note}"
        for report in results.checks
        if report.outcome not in decided
    )
