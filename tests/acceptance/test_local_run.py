"""`--runtime local`: a cluster in one process and in real time, and commands that query it.

The experiments are the project's own files, played on a clock ten times as fast as real time.
`command_line` runs `python -m coordlab` in a process of its own and an empty folder; `runs()` are
the run directories in it. SCALED_DOWN has options for short timeouts, ENDLESS for a fault of 100 s.
"""

import json
from pathlib import Path

import pytest

from chaos.experiment.loader import load_experiment
from cluster.runtime import DRIVER
from protocol.trace import TraceKind, TraceRow
from results_schema.manifest import RunStatus
from results_schema.results import RunOutcome, Verdict
from tests.acceptance.test_ray_groups import ask
from tests.acceptance.test_ray_run import (
    ENDLESS,
    GROUP,
    PATIENCE_S,
    SCALED_DOWN,
    in_force,
    wait_until,
)
from tests.support.harness.command_line import CommandLine
from tests.support.worlds.acceptance import play_local, play_virtual, rows_of_run
from tests.support.worlds.story import milestones_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TIME_SCALE = 10.0
SMALLER = ("topics.orders.partitions=6", "producers[0].records_per_second=20")
"""Changes that make an experiment smaller."""


def test_experiment_in_one_process_agrees_with_virtual_time(tmp_path: Path) -> None:
    """A run in real time has exactly the milestones of a run in virtual time (a simulated clock).

    A milestone is the first event of one kind, such as the election of the next coordinator. Only
    one experiment is played here; `make soak` plays every experiment.
    """
    variables = (*SMALLER, f"groups.{GROUP}.members=4", "run.after_faults=3s")
    experiment = load_experiment("pause_coordinator", variables).experiment
    rows: list[TraceRow] = []
    results = play_local(
        experiment, tmp_path, seed=1, observers=[rows.append], time_scale=TIME_SCALE
    )
    assert results.reasons == ()
    assert results.verdict is Verdict.PASS
    virtual = play_virtual(experiment, seed=1)
    assert set(milestones_of(rows, experiment, GROUP)) == set(
        milestones_of(virtual.rows, experiment, GROUP)
    )
    (fault,) = results.faults
    assert fault.in_force_from_us is not None
    assert fault.in_force_until_us is not None


def test_run_in_one_process_needs_neither_ray_nor_java(command_line: CommandLine) -> None:
    """The command runs without Java and without any program on its PATH.

    A run in real time has no digest (a hash of its trace), because no two such traces are equal.
    """
    done = command_line.run(
        "run",
        *("coordinator_crash", "--runtime", "local", "--time-scale", "10", "--json"),
        *SCALED_DOWN,
        *("--var", "faults[0].duration=6s", "--var", "run.after_faults=1s"),
        environment={"JAVA_HOME": None, "PATH": "/nowhere"},
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["results"]["verdict"] == Verdict.PASS
    (past,) = command_line.runs()
    assert past.manifest.runtime == "local"
    assert "--runtime local" in past.manifest.replay
    assert past.manifest.digest is None
    rows = rows_of_run(past.path)
    pids = {
        json.loads(row.detail or "{}").get("pid")
        for row in rows
        if row.kind == TraceKind.NODE_STARTED and row.node != DRIVER
    }
    assert len(pids) == 1, "all nodes live in the process of the command"


def test_groups_of_a_local_cluster_are_queried_from_another_process(
    command_line: CommandLine,
) -> None:
    """`groups` finds the brokers' addresses in the run's directory; SIGTERM heals and ends the run.

    The plan would heal the fault after 100 s. The end of the run comes first, so `healed_by` is
    "end".
    """
    with command_line.started(
        "run", "coordinator_crash", "--runtime", "local", *SCALED_DOWN, *ENDLESS
    ) as run:
        wait_until(lambda: run.poll() is not None or in_force(command_line), "the fault")
        assert run.poll() is None, run.communicate()
        code, described = ask(command_line, "describe", "--group", GROUP)
        assert code == 0
        assert described["groups"][0]["group"] == GROUP
        run.terminate()
        output, errors = run.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in output + errors
    (past,) = command_line.runs()
    assert past.manifest.status is RunStatus.INTERRUPTED
    results = past.results()
    assert results is not None
    assert results.outcome is RunOutcome.INTERRUPTED
    assert [fault.healed_by for fault in past.journal()] == ["end"]
    assert command_line.processes() == []
