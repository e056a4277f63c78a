"""Genome: all that defines one run of a search, in a form that can be changed.

Normally a seed alone defines a run: the seed draws the options of all settings, the faults, and the
latencies of the network. But a mutation changes only one of these three things, and keeps the
others. So a genome has a field for each of them. The experiment of a changed genome may be invalid.
"""

from dataclasses import dataclass, field, replace

import msgspec

from chaos.experiment.rules.all_rules import errors
from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.exploration.draw.draw import OptionKey, draw, draw_cluster
from chaos.exploration.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Genome:
    """Definition of an experiment and of the seed of its run.

    - `seed`: the seed that draws the settings of the experiment (the options of the space's
      choices).
    - `options`: the choices that a mutation has changed, each with the index of its new option.
    - `faults`: the plan of faults.
    - `network_seed`: the seed with which the run is played. It determines the latencies of
      messages.
    """

    seed: int
    faults: tuple[FaultDefinition, ...]
    network_seed: int
    options: dict[OptionKey, int] = field(default_factory=dict)

    def with_faults(self, faults: list[FaultDefinition]) -> "Genome":
        """Return the genome with other faults."""
        return replace(self, faults=tuple(faults))


def drawn_genome(space: Space, seed: int) -> Genome:
    """Return the genome that `seed` draws.

    Raises: ExperimentError if the drawn experiment is invalid.
    """
    return Genome(seed=seed, faults=draw(space, seed).faults, network_seed=seed)


def experiment_of(space: Space, genome: Genome, name_seed: int) -> Experiment:
    """Return the experiment of a genome, named after `name_seed`. It may be invalid."""
    cluster, _ = draw_cluster(space, genome.seed, genome.options, name_seed=name_seed)
    return msgspec.structs.replace(cluster, faults=genome.faults)


def can_be_run(experiment: Experiment) -> bool:
    """Return True if the loader would accept the experiment."""
    return next(iter(errors(experiment)), None) is None
