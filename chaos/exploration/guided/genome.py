"""Genome: all that defines one run of a search, in a form that can be changed.

A seed alone defines a run: it draws the options of all settings, the faults, and the latencies of
the network. A mutation must be able to change one of these and keep the others. So a genome has
them apart. The experiment of a changed genome may be invalid.
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

    - `seed`: draws the settings of the experiment (the options of the space's choices).
    - `options`: settings that a mutation has changed; each is the index of an option.
    - `faults`: the plan.
    - `network_seed`: the seed with which the run is played; it determines the latencies of
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
    """Return the genome that `seed` draws. Raises: ExperimentError, see `draw`."""
    return Genome(seed=seed, faults=draw(space, seed).faults, network_seed=seed)


def experiment_of(space: Space, genome: Genome, name_seed: int) -> Experiment:
    """Return a genome's experiment, named after `name_seed`; the experiment may be invalid."""
    cluster, _ = draw_cluster(space, genome.seed, genome.options, name_seed=name_seed)
    return msgspec.structs.replace(cluster, faults=genome.faults)


def can_be_run(experiment: Experiment) -> bool:
    """Return True if the loader would accept the experiment."""
    return next(iter(errors(experiment)), None) is None
