"""Experiments on a local Ray, at ten times the speed of their timeouts.

The files are those of users; only the group is smaller. The soak compares the lengths of phases
with virtual time, at the real speed. These tests check that the milestones have the same order, and
that real processes were stopped, cut off and asked to stop.
"""

from pathlib import Path

import pytest

from chaos.experiment.loader import load_experiment
from cluster.realtime.machine_processes import start_ticks
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Verdict
from tests.support.worlds.acceptance import detail_of, play_ray, play_virtual
from tests.support.worlds.story import milestones_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("local_ray"),
]

GROUP = "orders-readers"
TIME_SCALE = 10.0
SMALLER = ("topics.orders.partitions=6", "producers[0].records_per_second=20")
EXPERIMENTS = {
    # A signal to a real process; members wait for it.
    "pause_coordinator": (*SMALLER, f"groups.{GROUP}.members=4", "run.after_faults=3s"),
    # Rules over the control plane, members that join late, processes that get the rules again.
    "split_brain_generations": (*SMALLER, f"groups.{GROUP}.members=3", "run.after_faults=5s"),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_on_ray_agrees_with_virtual_time(name: str, tmp_path: Path) -> None:
    """The run on Ray has exactly the milestones of virtual time; no process is left."""
    experiment = load_experiment(name, EXPERIMENTS[name]).experiment
    rows: list[TraceRow] = []
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    results = play_ray(experiment, run_dir, seed=1, observers=[rows.append], time_scale=TIME_SCALE)

    assert results.reasons == ()
    assert results.verdict is Verdict.PASS
    virtual = play_virtual(experiment, seed=1)
    milestones = milestones_of(rows, experiment, GROUP)
    assert set(milestones) == set(milestones_of(virtual.rows, experiment, GROUP))
    (fault,) = results.faults
    assert fault.in_force_from_us is not None
    assert fault.in_force_until_us is not None
    assert fault.healed_at_us is not None
    assert fault.in_force_from_us < fault.in_force_until_us <= fault.healed_at_us
    pids = [
        int(str(detail_of(row)["pid"]))
        for row in rows
        if row.kind == TraceKind.NODE_STARTED and "pid" in detail_of(row)
    ]
    assert len(set(pids)) >= 5
    assert [pid for pid in pids if start_ticks(pid) is not None] == []
