"""Mutations: small variations of a plan that had an interesting run.

A seed draws a plan (a list of faults) from a space, which is a file that says what may be drawn. A
mutation, which has a seed of its own, changes a few things in a copy of the plan: it moves,
lengthens, drops or adds a fault, or chooses another setting. The changed copy is called a mutant,
and the original plan is its parent.

What a mutation changes is called the genome of the plan. It consists of the faults, the settings,
and the network seed, which decides latencies and everything else in a run that is left to chance.

A plan is named by the seeds that made it, its lineage. (3, 1007) is the plan that seed 3 draws,
mutated by seed 1007.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from hashlib import sha256

import msgspec
import pytest

from chaos.experiment.rules.all_rules import errors
from chaos.exploration.draw.draw import draw
from chaos.exploration.guided.genome import Genome, drawn_genome, experiment_of
from chaos.exploration.guided.lineage import grow, lineage_of_text, lineage_text
from chaos.exploration.guided.mutation import SAME_NETWORK, mutate
from chaos.exploration.space import Space
from tests.support.builders.packaged_spaces import packaged_space

PARENT = 3
"""Seed that draws the parent of all mutants here."""
MUTANTS = range(1_000, 1_150)
"""Seeds of the 150 mutations of the parent."""
# A program for another Python process. In that process it calls `digests` of this module, and
# prints the result.
DIGESTS = """
import json
from tests.chaos.exploration.guided.test_mutation import digests
print(json.dumps(digests()))
"""


@cache
def standard() -> Space:
    return packaged_space("standard")


@cache
def mutants() -> tuple[Genome, ...]:
    """Return a mutant of the parent for each seed in MUTANTS."""
    parent = drawn_genome(standard(), PARENT)
    return tuple(mutate(standard(), parent, seed) for seed in MUTANTS)


def digests() -> list[str]:
    """Return a digest (a hash) of the plan of each of three lineages."""
    lineages = [(0, 400), (1, 400), (2, 401, 402, 403)]
    return [
        sha256(msgspec.json.encode(grow(standard(), lineage).experiment)).hexdigest()
        for lineage in lineages
    ]


@pytest.mark.slow
def test_lineage_means_the_same_in_another_process() -> None:
    """A worker builds a plan from its lineage alone, so the plan must be equal in every process.

    In the other process sets have another order, because it has another PYTHONHASHSEED. 4711 is an
    arbitrary number.
    """
    completed = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(completed) == digests()
    assert len(set(digests())) == 3  # the three plans differ


def test_lineage_of_one_seed_is_the_drawn_plan() -> None:
    """A lineage of one seed names the plan that this seed draws. There is no mutation."""
    grown = grow(standard(), (PARENT,))
    assert (grown.experiment, grown.network_seed) == (draw(standard(), PARENT), PARENT)


@pytest.mark.slow
def test_every_mutant_can_be_run_and_is_called_by_its_own_seed() -> None:
    """Each mutant passes the checks of an experiment file, and has a name with its own seed."""
    for seed, genome in zip(MUTANTS, mutants(), strict=True):
        experiment = experiment_of(standard(), genome, seed)
        assert list(errors(experiment)) == []
        assert experiment.name == f"standard-{seed}"


def test_mutant_keeps_most_of_its_parent() -> None:
    """The faults of the parent brought its run into a rare situation, so most of them are kept.

    But each mutant differs from its parent in something. And the mutants differ from one another:
    150 mutants have more than 75 different lists of faults.
    """
    parent = drawn_genome(standard(), PARENT)
    parent_faults = Counter(msgspec.json.encode(fault) for fault in parent.faults)
    kept_shares = []
    for genome in mutants():
        assert genome.seed == parent.seed  # the seed that drew the parent
        assert genome != parent
        faults = Counter(msgspec.json.encode(fault) for fault in genome.faults)
        kept_shares.append((parent_faults & faults).total() / parent_faults.total())
    # At least half of the mutants keep 80 % of the parent's faults or more.
    median = sorted(kept_shares)[len(kept_shares) // 2]
    assert median >= 0.8
    different_plans = {msgspec.json.encode(genome.faults) for genome in mutants()}
    assert len(different_plans) > len(mutants()) / 2


def test_mutants_move_lengthen_drop_and_add_faults_and_change_settings() -> None:
    """Each kind of change occurs at least once among the mutants of one parent."""
    parent = drawn_genome(standard(), PARENT)
    parent_size = len(parent.faults)
    sizes = {len(genome.faults) for genome in mutants()}
    assert min(sizes) < parent_size < max(sizes)
    assert any(genome.options for genome in mutants())  # settings that the mutation has chosen
    # In mutants with the same number of faults, some fault must begin at another time, and some
    # fault must have another duration.
    same_size = [genome for genome in mutants() if len(genome.faults) == parent_size]
    assert any(
        [fault.at for fault in genome.faults] != [fault.at for fault in parent.faults]
        for genome in same_size
    )
    parent_durations = Counter(fault.duration for fault in parent.faults)
    assert any(
        Counter(fault.duration for fault in genome.faults) != parent_durations
        for genome in same_size
    )


def test_half_of_the_mutants_keep_their_parents_network_seed() -> None:
    """With the same network seed, a run equals the run of its parent up to the first changed fault.

    So a rare moment before this fault occurs again. The other half of the mutants have network
    seeds of their own, so that something else can happen, too. SAME_NETWORK is the share of mutants
    that keep the parent's network seed.
    """
    keep_parents_seed = sum(genome.network_seed == PARENT for genome in mutants())
    have_own_seed = sum(
        genome.network_seed == seed for seed, genome in zip(MUTANTS, mutants(), strict=True)
    )
    assert keep_parents_seed + have_own_seed == len(mutants())
    # The difference allows for chance among 150 mutants.
    assert abs(keep_parents_seed / len(mutants()) - SAME_NETWORK) < 0.15


def test_lineage_is_written_as_its_seeds() -> None:
    """A lineage is written as its seeds with hyphens, and read back from this text.

    Other texts, such as the id of a fault, are no lineage: None.
    """
    assert lineage_text((12, 400, 4711)) == "12-400-4711"
    assert lineage_of_text("12-400-4711") == (12, 400, 4711)
    assert lineage_of_text("4711") == (4711,)
    assert lineage_of_text("crash-0") is None
    assert lineage_of_text("12-") is None
