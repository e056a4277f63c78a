"""What a mutated seed found can be played again: by its file, and by its lineage."""

from pathlib import Path

import pytest

from chaos.experiment.loader import load_experiment
from chaos.exploration.batches import play_seed
from chaos.exploration.finding_files import finding_text
from chaos.exploration.guided.lineage import grow
from chaos.exploration.play import PlayedFinding, play
from chaos.exploration.running_totals import FindingGroup
from chaos.exploration.signature import Signature
from chaos.exploration.space import load_space
from coordlab.schedules import named_schedule

LINEAGE = (1, 7, 5)


@pytest.mark.slow
def test_file_of_a_mutated_seeds_finding_plays_the_same_run(tmp_path: Path) -> None:
    """It has the plan and the network seed, which may be an ancestor's."""
    space = load_space("reference")
    run = play_seed(space, LINEAGE)
    assert (run.seed, run.lineage) == (5, LINEAGE)
    signature = Signature(check="fencing", claim="it broke")
    finding = PlayedFinding(signature=signature, summary="it broke", time_us=1)
    group = FindingGroup(signature=signature, number=1, example=run, finding=finding)

    path = tmp_path / "finding.yaml"
    path.write_text(finding_text(group, space, None))
    loaded = load_experiment(str(path)).experiment

    assert "seed 1-7-5" in path.read_text()
    assert loaded.replay is not None
    assert play(loaded, loaded.replay.seed).digest == run.digest


def test_lineage_on_the_command_line_is_the_mutated_schedule() -> None:
    schedule = named_schedule("1-7-5", "reference")
    grown = grow(load_space("reference"), LINEAGE)

    assert (schedule.experiment, schedule.seed) == (grown.experiment, grown.network_seed)
    assert schedule.name == "1-7-5 --space reference"
