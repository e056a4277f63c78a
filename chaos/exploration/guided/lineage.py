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
"""Seeds, oldest first; the last is the run's own."""
MAX_GENERATIONS = 8
"""A plan is not mutated more often than this, because each mutation costs some milliseconds."""
_WRITTEN = re.compile(r"\d+(-\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """An experiment, and the seed of its run."""

    experiment: Experiment
    network_seed: int


def grow(space: Space, lineage: Lineage) -> Grown:
    """Return the experiment of a lineage in `space`; it is the same in every process.

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
    """Return a lineage in the form of the command line."""
    return "-".join(map(str, lineage))


def lineage_of_text(text: str) -> Lineage | None:
    """Return the lineage written as `text`; None for another form."""
    if _WRITTEN.fullmatch(text) is None:
        return None
    return tuple(map(int, text.split("-")))
