"""A genome: the options, faults and network seed that define one experiment of a space.

A space is an experiment with choices: settings that vary, each with its options. A seed draws an
option for each choice, and the faults. A mutation changes a genome, and the changed genome may
define an invalid experiment.
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

    - `seed`: draws the option of each choice of the space that is not in `options`.
    - `options`: choice -> index of its option.
    - `network_seed`: the seed of the run, which determines the latencies of its network.
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
