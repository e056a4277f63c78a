"""Experiments on a local Ray, where each node is a real process, agree with virtual time.

Users play the same experiments, but here the groups are smaller, and the clock is ten times as fast
as real time. Times on real processes differ a little, so the tests compare only which milestones
are reached. A milestone is an event such as the election of the next coordinator. The soak tests
also compare times, at the real speed.
"""

from pathlib import Path

import pytest

from chaos.checkers.context import detail_of
from chaos.experiment.loader import load_experiment
from cluster.realtime.machine_processes import start_ticks
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Verdict
from tests.support.worlds.acceptance import play_ray, play_virtual
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
"""Settings that make an experiment smaller than in its file."""
EXPERIMENTS = {
    # The fault stops a real process by a signal.
    "pause_coordinator": (*SMALLER, f"groups.{GROUP}.members=4", "run.after_faults=3s"),
    # The fault forbids connections between real processes. Some members join late.
    "split_brain_generations": (*SMALLER, f"groups.{GROUP}.members=3", "run.after_faults=5s"),
}
"""The experiments, each with the settings that differ from its file."""


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_on_ray_agrees_with_virtual_time(name: str, tmp_path: Path) -> None:
    """The run on Ray reaches exactly the milestones of virtual time, and leaves no process."""
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
    # One controller, three brokers, and at least one client.
    assert len(set(pids)) >= 5
    # `start_ticks` returns None if a process does not exist.
    assert [pid for pid in pids if start_ticks(pid) is not None] == []
