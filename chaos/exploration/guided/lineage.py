"""Lineages: the seeds that together define the experiment of a mutated run.

The lineage `12-400-4711` means that seed 12 drew a plan of faults, seed 400 changed that plan, and
seed 4711 changed the plan of seed 400. If a seed drew its own plan, its lineage has only this seed.
"""

import re
from dataclasses import dataclass

from chaos.experiment.structs import Experiment
from chaos.exploration.draw.draw import draw
from chaos.exploration.guided.genome import drawn_genome, experiment_of
from chaos.exploration.guided.mutation import mutate
from chaos.exploration.space import Space

Lineage = tuple[int, ...]
"""The seeds of a lineage, oldest first. The last one is the run's own seed."""
MAX_GENERATIONS = 8
"""Maximum number of mutations from the drawn plan to the last plan.

To make the last plan, all mutations are done again, and each costs some milliseconds.
"""
_WRITTEN = re.compile(r"\d+(-\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """An experiment, and the seed that determines the latencies of the network in its run."""

    experiment: Experiment
    network_seed: int


def grow(space: Space, lineage: Lineage) -> Grown:
    """Return the experiment of a lineage in `space`. Every process gets the same experiment.

    Raises: ExperimentError if the lineage's first seed draws an invalid experiment.
    """
    seed = lineage[-1]
    if len(lineage) == 1:
        return Grown(experiment=draw(space, seed), network_seed=seed)
    genome = drawn_genome(space, lineage[0])
    for mutant in lineage[1:]:
        genome = mutate(space, genome, mutant)
    # A mutated run may have the network seed of its parent.
    return Grown(experiment=experiment_of(space, genome, seed), network_seed=genome.network_seed)


def lineage_text(lineage: Lineage) -> str:
    """Return a lineage as users write it, such as `12-400-4711`."""
    return "-".join(map(str, lineage))


def lineage_of_text(text: str) -> Lineage | None:
    """Return the lineage that is written as `text`; None if the text has another form."""
    if _WRITTEN.fullmatch(text) is None:
        return None
    return tuple(map(int, text.split("-")))
