"""Compare an experiment in real time with the same experiment in virtual time (a simulated clock).

The soak (a set of very long tests) does this for each runtime that plays in real time. The
experiment is played several times in real time and several times in virtual time. Then the
milestones of the runs are compared. (A milestone is an event of the group, with its time after the
fault.) The result of each run is saved, so that an interrupted soak continues where it ended.
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
"""The number of runs of each experiment in real time. There are as many in virtual time."""
SHIFT_MS = 600
"""In each run, the faults come 600 ms later than in the run before.

So the delays of the five runs are 0, 600, and up to 2,400 ms. A fault is noticed sooner or later
after it came, depending on how long ago the last heartbeat was. These delays spread the faults over
an interval of the brokers' heartbeats (2 s), and over most of an interval of the members'
heartbeats (3 s). Random delays would not do this: all five might be about the same.
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
"""Experiment -> the index of the fault that hits the group's coordinator, if it is not 0."""

Player = Callable[[Experiment, Path, int, Sequence[RowObserver]], Results]
"""Plays an experiment: (experiment, an existing directory, seed, observers) -> results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """The part of a run's results that is compared and saved."""

    verdict: str
    reasons: tuple[str, ...]
    # The checks that had something to judge and did not pass.
    undecided: tuple[str, ...]
    milestones: Milestones
    failover: Failover


def compare_with_virtual_time(part: str, name: str, play: Player, folder: Path) -> None:
    """Play an experiment RUNS times with `play` and RUNS times in virtual time, and compare them.

    The runs in real time and in virtual time must have the same milestones in the same order. A
    phase is the time from one milestone to the next. If it takes a second or more, its two median
    lengths may differ by 20 %. The comparison is printed; docs/SOAK.md records the lines.

    part: the name of the part of the soak. The runs are saved under this name.
    play: plays an experiment in real time.

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
    found_differences = differences(virtual_milestones, real_milestones)

    say(f"**{name}**: {sum(run.verdict == Verdict.PASS for run in real)} of {RUNS} passed")
    virtual_lengths_us = {
        (phase.start, phase.end): phase.length_us for phase in phases_of(virtual_milestones)
    }
    for phase in phases_of(real_milestones):
        line = f"{phase.start} -> {phase.end}: {phase.length_us / 1e6:.2f} s"
        virtual_us = virtual_lengths_us.get((phase.start, phase.end))
        if virtual_us is not None:
            line += f" (virtual time {virtual_us / 1e6:.2f} s)"
        say(line)
    say_failovers([run.failover for run in real])
    say(f"told otherwise in virtual time: {'; '.join(found_differences) or 'nothing'}")

    for run in (*real, *virtual):
        assert run.reasons == ()
        assert run.verdict == Verdict.PASS
        assert run.undecided == ()
    assert found_differences == []


def shifted(name: str, shift_ms: int) -> Experiment:
    """Return an experiment in which all faults and late members come `shift_ms` later.

    All nodes start at the same time, as they do in real time.
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
    """Play run `number` of an experiment with `play`. The number is also the seed."""
    experiment = shifted(name, number * SHIFT_MS)
    run_dir = folder / f"run-{number}"
    run_dir.mkdir()
    rows: list[TraceRow] = []
    results = play(experiment, run_dir, number, [rows.append])
    return _compared(name, experiment, results, rows)


def _run_virtually(name: str, number: int) -> ComparedRun:
    """Play run `number` of an experiment in virtual time. The number is also the seed."""
    experiment = shifted(name, number * SHIFT_MS)
    run = play_virtual(experiment, seed=number)
    return _compared(name, experiment, run.results, run.rows)


def _compared(
    name: str, experiment: Experiment, results: Results, rows: Sequence[TraceRow]
) -> ComparedRun:
    """Return the part of a finished run's results that is compared and saved."""
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
