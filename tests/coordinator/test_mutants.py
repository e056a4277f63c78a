"""Tests of the tests: if the coordinator is changed for the worse, some test must fail.

Many tests of the coordinator repeat a case of Kafka's own tests, a scenario with an id such as
GC-162. Does such a test really notice if the behaviour is wrong? The file mutants.toml lists
changes of the code (mutants), and names for each mutant the scenario that the mutant breaks. A
mutant is applied to a copy of the coordinator, and then the tests of its scenario must fail.
`make soak PART=mutants` does this for all mutants. The tests here do this for a sample.
"""

import msgspec
import pytest

from tests.support.mutation.mutants import (
    PACKAGE,
    ROOT,
    Mutant,
    read_mutants,
    scenario_tests,
    survivors,
)

MUTANTS = read_mutants()
MUTANTS_AT_LEAST = 60
"""If there are fewer mutants, some have been lost by mistake."""
SAMPLE_STEP = 6
"""The sample has every sixth mutant, because the tests of a mutant take half a second."""


def test_list_has_enough_mutants_and_no_duplicate() -> None:
    """Two mutants may change the same line, but not in the same way."""
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(changes) >= MUTANTS_AT_LEAST
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_mutant_fits_the_code_and_its_scenario_has_a_test(mutant: Mutant) -> None:
    """A mutant replaces a piece of the code. `applied_to` raises if the code has no such piece."""
    mutant.applied_to((ROOT / PACKAGE / mutant.file).read_text(encoding="utf-8"))
    assert scenario_tests(mutant)


@pytest.mark.slow
def test_mutants_are_killed_by_the_tests_of_their_scenarios(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """All mutants of the sample make tests fail.

    One more mutant adds only a space. It must survive, which means that no test fails. So the tests
    do not fail merely because the code was copied.
    """
    sample = MUTANTS[::SAMPLE_STEP]
    only_a_space = msgspec.structs.replace(sample[0], new=f"{sample[0].old} ")
    folder = tmp_path_factory.mktemp("mutants")
    assert survivors(folder, [*sample, only_a_space]) == [only_a_space]
