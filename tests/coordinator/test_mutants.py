"""Each scenario that a test names has a test that fails when the behaviour changes.

A scenario is a case of Kafka's tests with an id such as GC-162. A mutant is one change of the code.
Each mutant of mutants.toml is applied to a copy of the coordinator, and the tests that name its
scenario must then fail. `make soak PART=mutants` runs all mutants.
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
"""With fewer mutants the list must have lost some by mistake."""
SAMPLE_STEP = 6
"""The sample has each sixth mutant, because the tests of a mutant take half a second."""


def test_list_has_enough_mutants_and_no_duplicate() -> None:
    """Two mutants may change the same line, but then differently."""
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(changes) >= MUTANTS_AT_LEAST
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_mutant_fits_the_code_and_its_scenario_has_a_test(mutant: Mutant) -> None:
    """A mutant whose old text is no longer in the code would silently test nothing."""
    mutant.applied_to((ROOT / PACKAGE / mutant.file).read_text(encoding="utf-8"))
    assert scenario_tests(mutant)


@pytest.mark.slow
def test_mutants_are_killed_by_the_tests_of_their_scenarios(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The sampled mutants make tests fail, and the mutant `same` does not.

    `same` changes only white space. It shows that copying the code alone makes no test fail.
    """
    sample = MUTANTS[::SAMPLE_STEP]
    same = msgspec.structs.replace(sample[0], new=f"{sample[0].old} ")
    folder = tmp_path_factory.mktemp("mutants")
    assert survivors(folder, [*sample, same]) == [same]
