"""Experiments behave on a local Ray as they do in virtual time (a simulated clock).

Each experiment, with Kafka's default timeouts, is played five times on Ray and five times in
virtual time. The milestones of the runs are compared, which are events of the group with their
times after the fault. The figures of the failovers are printed in the order of
docs/kafka/MEASURED_FAILOVER.md, so that a person can compare them with that page.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.experiment.structs import Experiment
from cluster.runtime import RowObserver
from results_schema.results import Results
from tests.support.worlds.acceptance import play_ray
from tests.support.worlds.compared_runs import EXPERIMENTS, compare_with_virtual_time

pytestmark = [
    pytest.mark.soak,
    pytest.mark.ray,
    pytest.mark.timeout(1_800),
    pytest.mark.usefixtures("local_ray"),
]


def play(
    experiment: Experiment, run_dir: Path, seed: int, observers: Sequence[RowObserver]
) -> Results:
    """Play one run on Ray, in real time."""
    return play_ray(experiment, run_dir, seed=seed, observers=observers)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_five_runs_agree_with_virtual_time(name: str, tmp_path: Path) -> None:
    """The runs on Ray and in virtual time have the same milestones in the same order.

    Long phases differ by 20 % at most.
    """
    compare_with_virtual_time("ray", name, play, tmp_path)
