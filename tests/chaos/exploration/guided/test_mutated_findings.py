"""If a guided search finds something with a mutated plan, a person can play the run again.

A plan is a list of faults. A guided search plays small variations ("mutations") of earlier plans.
So a run is not determined by one seed, but by several seeds, which are called its lineage. (1, 7,
5) is the lineage of the plan that seed 1 draws from a space, mutated by seed 7 and then by seed 5.

The person can play the run from the file of the finding, or from the lineage, written as `1-7-5`.
"""

from functools import partial
from pathlib import Path

import pytest

from chaos.experiment.loader import load_experiment
from chaos.exploration.batches import play_seed, play_seeds
from chaos.exploration.finding_files import finding_text
from chaos.exploration.guided.guidance import Guidance
from chaos.exploration.guided.lineage import grow
from chaos.exploration.play import PlayedFinding, PlayedRun, play
from chaos.exploration.running_totals import FindingGroup, Tally
from chaos.exploration.search import Limits, Search
from chaos.exploration.signature import Signature
from chaos.exploration.space import load_space
from chaos.exploration.store import ExplorationRecord, PlayedSeeds
from cluster.fan_out import ThisProcess
from coordlab.schedules import named_schedule

LINEAGE = (1, 7, 5)


@pytest.mark.slow
def test_file_of_a_mutated_seeds_finding_plays_the_same_run(tmp_path: Path) -> None:
    """The file has the plan, and the network seed, which decides latencies and the like.

    The network seed of a mutated plan may be the seed of an earlier plan of its lineage. The run
    has no finding, so the test makes a finding up.
    """
    space = load_space("reference")
    run = play_seed(space, LINEAGE)
    assert (run.seed, run.lineage) == (5, LINEAGE)  # 5 is the seed of the last mutation
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
    """Commands accept `1-7-5` in place of a seed, and play the mutated plan."""
    schedule = named_schedule("1-7-5", "reference")
    grown = grow(load_space("reference"), LINEAGE)

    assert (schedule.experiment, schedule.seed) == (grown.experiment, grown.network_seed)
    assert schedule.name == "1-7-5 --space reference"


@pytest.mark.slow
def test_mutated_runs_are_equal_without_and_with_an_interruption_of_the_search() -> None:
    """A search of 14 runs is played as a whole, and again in two parts of 8 and 6 runs.

    The second part continues from the records of the first part. It must choose the same parents
    (the plans that are mutated) as the whole search.

    The seeds are divided into blocks. A mutation uses only the results of earlier blocks that are
    complete. Here a block has only 3 seeds, so that 14 runs are enough.
    """
    space = load_space("reference")

    def search(count: int, before: list[ExplorationRecord]) -> list[ExplorationRecord]:
        """Continue from the records `before` until `count` runs are played. Return all records."""
        # 20 % of the runs are played twice, and 90 % of the seeds are mutations.
        tally, guidance = Tally(recheck_percent=20), Guidance(share=0.9, block=3)
        for record in before:
            tally.take(record)
            guidance.take(record)
        written = [*before]
        Search(
            tally,
            ThisProcess(partial(play_seeds, space)),
            Limits(count=count),
            clock=lambda: 0.0,  # the search has no time limit
            write=written.append,
            guidance=guidance,
        ).run()
        # No run differed when it was played twice, and none was broken.
        assert (tally.differences, tally.broken, tally.runs) == ([], {}, count)
        return written

    def runs_in(records: list[ExplorationRecord]) -> dict[int, PlayedRun]:
        played = [record for record in records if isinstance(record, PlayedSeeds)]
        return {run.seed: run for record in played for run in record.runs}

    whole = runs_in(search(count=14, before=[]))
    first_part = search(count=8, before=[])
    assert runs_in(search(count=14, before=first_part)) == whole
    mutated = [run for run in whole.values() if run.lineage]
    assert len(mutated) > 3  # so the parts had to choose parents
