"""Every experiment with Kafka's real default timeouts on a local Ray, five runs each.

Each experiment is compared with five runs of the same file in virtual time (a simulated clock), by
its milestones: the first events of each kind. The figures of a failover are printed in the order of
docs/kafka/MEASURED_FAILOVER.md, so that a person can compare them with that page. Finished runs are
kept, so that an interrupted soak continues.
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
    """Play one run; all its times are those of the machine's clock."""
    return play_ray(experiment, run_dir, seed=seed, observers=observers)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_five_runs_agree_with_virtual_time(name: str, tmp_path: Path) -> None:
    """The runs on Ray and in virtual time have the same milestones in the same order.

    Long phases differ by 20 % at most.
    """
    compare_with_virtual_time("ray", name, play, tmp_path)
