"""Mutations: small, runnable, drawn from the mutant's own seed, equal in every process.

A plan is a list of faults, which a seed draws from a space (a file of what may vary). A genome is
what a plan is built from: faults, chosen settings, and the network seed. A mutant is a copy of a
genome, its parent, with a small change. A lineage is the seeds of a plan: the seed that drew it,
then the seed of each mutation. The network seed decides latencies and other chances of a run.
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
"""Seeds of the mutations."""
# A program that prints the digests of this module, for another process.
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
    """Return 150 mutants of one parent."""
    parent = drawn_genome(standard(), PARENT)
    return tuple(mutate(standard(), parent, seed) for seed in MUTANTS)


def digests() -> list[str]:
    """Return the digests of the plans of a few lineages."""
    lineages = [(0, 400), (1, 400), (2, 401, 402, 403)]
    return [
        sha256(msgspec.json.encode(grow(standard(), lineage).experiment)).hexdigest()
        for lineage in lineages
    ]


@pytest.mark.slow
def test_lineage_means_the_same_in_another_process() -> None:
    """A worker builds a plan from its lineage alone, so the plan must be equal in every process."""
    completed = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(completed) == digests()
    assert len(set(digests())) == 3


def test_lineage_of_one_seed_is_the_drawn_plan() -> None:
    """Without a mutation the plan is the one that the seed draws."""
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
    """The faults of the parent made its run rare, so most mutants keep most of them.

    Each mutant differs in something, and more than half of the plans are different ones.
    """
    parent = drawn_genome(standard(), PARENT)
    parent_faults = Counter(msgspec.json.encode(fault) for fault in parent.faults)
    kept_shares = []
    for genome in mutants():
        assert genome.seed == parent.seed
        assert genome != parent
        faults = Counter(msgspec.json.encode(fault) for fault in genome.faults)
        kept_shares.append((parent_faults & faults).total() / parent_faults.total())
    median = sorted(kept_shares)[len(kept_shares) // 2]
    assert median >= 0.8
    plans = {msgspec.json.encode(genome.faults) for genome in mutants()}
    assert len(plans) > len(mutants()) / 2


def test_mutants_move_lengthen_drop_and_add_faults_and_change_settings() -> None:
    """Each kind of change occurs at least once among the mutants of one parent."""
    parent = drawn_genome(standard(), PARENT)
    parent_size = len(parent.faults)
    sizes = {len(genome.faults) for genome in mutants()}
    assert min(sizes) < parent_size < max(sizes)
    assert any(genome.options for genome in mutants())
    same_size = [genome for genome in mutants() if len(genome.faults) == parent_size]
    assert any(
        [fault.at for fault in genome.faults] != [fault.at for fault in parent.faults]
        for genome in same_size
    )
    lengths = Counter(fault.duration for fault in parent.faults)
    assert any(
        Counter(fault.duration for fault in genome.faults) != lengths for genome in same_size
    )


def test_half_of_the_mutants_keep_their_parents_network_seed() -> None:
    """With its parent's network seed, a run equals the parent's run up to the first changed fault.

    So a rare moment before this fault occurs again. SAME_NETWORK is the share of mutants that keep
    the network seed; the others have one of their own.
    """
    with_parents = sum(genome.network_seed == PARENT for genome in mutants())
    with_own = sum(
        genome.network_seed == seed for seed, genome in zip(MUTANTS, mutants(), strict=True)
    )
    assert with_parents + with_own == len(mutants())
    assert abs(with_parents / len(mutants()) - SAME_NETWORK) < 0.15


def test_lineage_is_written_as_its_seeds() -> None:
    """Other texts, such as the id of a fault, are no lineage."""
    assert lineage_text((12, 400, 4711)) == "12-400-4711"
    assert lineage_of_text("12-400-4711") == (12, 400, 4711)
    assert lineage_of_text("4711") == (4711,)
    assert lineage_of_text("crash-0") is None
    assert lineage_of_text("12-") is None
