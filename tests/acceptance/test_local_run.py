"""`coordlab run --runtime local`: a cluster in one process and in real time.

All nodes of such a run live in the process of the command. Time passes as on a wall clock, or ten
times as fast with `--time-scale 10`. Other commands can query the cluster while it runs.

The options SCALED_DOWN and SHORT make a run short. ENDLESS lets its fault last until the run ends.
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
    SHORT,
    in_force,
    wait_until,
)
from tests.support.harness.command_line import CommandLine
from tests.support.worlds.acceptance import play_local, play_virtual, rows_of_run
from tests.support.worlds.story import milestones_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TIME_SCALE = 10.0
"""The clock of the run goes ten times as fast as real time."""
SMALLER = ("topics.orders.partitions=6", "producers[0].records_per_second=20")
"""Settings that make an experiment smaller than in its file."""


def test_experiment_in_one_process_agrees_with_virtual_time(tmp_path: Path) -> None:
    """The same things happen in real time as in virtual time, where the clock is simulated.

    The times differ a little, so the test compares only which milestones are reached. A milestone
    is an event such as the election of the next coordinator. Only one experiment is played here;
    `make soak` plays every one.
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

    A run in virtual time has a digest in its manifest: a hash of its trace, with which a repetition
    can be compared. In real time no two traces are equal, so this run has no digest.
    """
    done = command_line.run(
        *("run", "coordinator_crash", "--runtime", "local", "--time-scale", "10", "--json"),
        *SCALED_DOWN,
        *SHORT,
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
    """`groups` finds the addresses of the brokers in the run's directory.

    Then SIGTERM ends the run. The fault would last 100 s (ENDLESS), so it is not the plan but the
    end of the run that heals it.
    """
    with command_line.started(
        "run", "coordinator_crash", "--runtime", "local", *SCALED_DOWN, *ENDLESS
    ) as run:
        wait_until(lambda: run.poll() is not None or in_force(command_line), "the fault")
        assert run.poll() is None, run.communicate()
        code, described = ask(command_line, "describe", "--group", GROUP)
        assert code == 0
        assert [group["group"] for group in described["groups"]] == [GROUP]
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
