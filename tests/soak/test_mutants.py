"""The checkers find planted bugs with many seeds, and the tests notice small changes of the code.

A planted bug is a change of the code that breaks a promise of Kafka, so a checker must report it.
`make test` plants each bug in a run with one seed, which shows that a checker can find the bug.
Here each bug is planted with many seeds, which shows whether finding it takes luck. With every
seed, code without a bug must have no finding. There are two sets of bugs:

- The bugs of tests/chaos/test_planted_bugs. The test of each bug injects the faults that make it
  visible.
- The bugs of benchmarks/planted_bugs. Here the faults are not given: `hunt` draws schedules of
  faults at random until one of them makes the bug visible, and then shrinks this schedule.

A mutant is a copy of the code with one small change. If a test fails with the change, this test has
killed the mutant. There are three kinds of mutants:

- A listed mutant breaks one scenario (a test case of Kafka). The tests of this scenario must kill
  it.
- A drawn mutant is one of a random sample of all possible changes. Any test of the coordinator may
  kill it.
- A recorded mutant was drawn long ago, and the tests killed it. They must still kill it after the
  code was moved or reworded.

`load_or_compute` saves a result, so that an interrupted test continues where it ended. `say` prints
a line.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from benchmarks.planted_bugs.bugs import BUGS
from benchmarks.planted_bugs.hunt import Hunted, hunt
from benchmarks.planted_bugs.record import is_found, write_page
from chaos.exploration.space import load_space
from tests.chaos import test_planted_bugs as planted_bugs
from tests.support.mutation.draw import sample
from tests.support.mutation.mutants import (
    PACKAGE,
    ROOT,
    drawn_survivors,
    read_mutants,
    read_survivors,
    survivors,
)
from tests.support.mutation.recorded_mutants import STAGES, fates_of_killed, read_record
from tests.support.soak import load_or_compute, say
from tests.support.worlds import planted

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_000)]

SEEDS = 40
FOUND_AT_LEAST = 0.9
"""The share of the seeds with which a bug must be found. With fewer, it is found only by chance."""

PlantedTest = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result of a planted bug's test with one seed."""

    # The first line of the failed assertion; None if the test passed.
    missed: str | None


def planted_tests() -> dict[str, PlantedTest]:
    """Return the tests that plant a bug and expect a finding, by their names."""
    return {
        name: function
        for name, function in inspect.getmembers(planted_bugs, inspect.isfunction)
        # A test that expects a finding says so in its name.
        if name.startswith("test_") and "_found" in name
    }


def attempt(test: PlantedTest, seed: int) -> Tried:
    """Run a test of tests/chaos/test_planted_bugs, but with this seed instead of its own."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(planted, "SEED", seed)
        try:
            # `attempt` calls the test without pytest, so it passes the only fixture itself.
            if "monkeypatch" in inspect.signature(test).parameters:
                test(monkeypatch)
            else:
                test()
        except AssertionError as error:
            first_line = str(error).partition("\n")[0]
            return Tried(missed=first_line or "an assertion failed")
    return Tried(missed=None)


@pytest.mark.parametrize("name", planted_tests())
def test_planted_bug_is_found_with_nearly_every_seed(name: str) -> None:
    """Whether a bug is found must not depend on the order of a few messages."""
    test = planted_tests()[name]
    tried = [
        load_or_compute("mutants", f"{name}-{seed}", Tried, partial(attempt, test, seed))
        for seed in range(SEEDS)
    ]
    found = sum(result.missed is None for result in tried)
    claim = name.removeprefix("test_").replace("_", " ")
    say(f"{found} of {SEEDS} seeds: {claim}")
    assert found >= FOUND_AT_LEAST * SEEDS, [result.missed for result in tried if result.missed]


@pytest.mark.parametrize(
    "fault",
    [
        planted_bugs.CRASH,
        planted_bugs.MOVE,
        planted_bugs.PAUSE,
        planted_bugs.PAUSE_MEMBER,
        planted.CUT,
    ],
    ids=lambda fault: str(fault["fault"]),
)
def test_code_without_a_bug_has_no_finding_with_every_seed(fault: dict[str, object]) -> None:
    """If code without a bug had findings, a finding would prove nothing."""
    name = f"{fault['fault']}-{fault.get('target', 'links')}".replace("(", "-").replace(")", "")
    test = partial(planted_bugs.test_runs_without_a_bug_pass_every_check, fault)
    tried = [
        load_or_compute("mutants", f"sound-{name}-{seed}", Tried, partial(attempt, test, seed))
        for seed in range(SEEDS)
    ]
    failures = [result.missed for result in tried if result.missed is not None]
    say(f"{SEEDS - len(failures)} of {SEEDS} seeds silent without a bug: {name}")
    assert failures == []


MAY_BE_MISSED = 1
"""The number of planted bugs that the hunt may miss."""


def hunted(name: str) -> Hunted:
    """Return the result of the hunt for one bug. If it is not saved yet, hunt now.

    The space of a bug is a file that says which faults the hunt may draw.
    """
    return load_or_compute(
        "mutants",
        f"hunted-{name}",
        Hunted,
        lambda: hunt(BUGS[name], load_space(BUGS[name].space)),
    )


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_hunted_in_its_space(name: str) -> None:
    """Run and save one hunt. The next test judges the results of all hunts.

    Each bug has a test of its own, so that an interrupted soak loses one hunt at most.
    """
    assert hunted(name).seeds_tried > 0


def test_search_finds_and_shrinks_nearly_every_planted_bug() -> None:
    """`is_found` demands that a bug is found within 500 seeds and shrunk to three faults.

    This must take less than half a minute for each bug. One bug may be missed.
    """
    hunts = [hunted(name) for name in BUGS]
    # Write the page before the assertion. So it also has the results of hunts that missed bugs.
    write_page(hunts)
    found = [result.bug for result in hunts if is_found(result)]
    say(f"{len(found)} of {len(hunts)} bugs found by search and shrunk: docs/PLANTED_BUGS.md")
    assert len(found) >= len(BUGS) - MAY_BE_MISSED, sorted(set(BUGS) - set(found))


def test_every_mutant_of_the_coordinator_is_killed_by_the_tests_of_its_scenario(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """All listed mutants are tried here. `make test` tries only some of them."""
    mutants = read_mutants()
    alive = [mutant.name for mutant in survivors(tmp_path_factory.mktemp("mutants"), mutants)]
    killed = len(mutants) - len(alive)
    say(f"{killed} of {len(mutants)} mutants of the coordinator killed by their scenario's tests")
    assert alive == []


SAMPLED = 300
"""The number of mutants in the sample."""
SAMPLE_SEED = 7
KILLED_AT_LEAST = 0.85
"""The tests must kill this share of the sampled mutants."""


@pytest.mark.timeout(3_600)
def test_nearly_every_drawn_mutant_of_the_coordinator_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each mutant that no test kills is printed, with the reason if one is known."""
    drawn = sample(ROOT / PACKAGE, SAMPLED, SAMPLE_SEED)
    alive = drawn_survivors(tmp_path_factory.mktemp("drawn"), drawn)
    killed = len(drawn) - len(alive)
    say(f"{killed} of {len(drawn)} drawn mutants of the coordinator killed by its tests")
    reasons = {
        (survivor.file, survivor.before, survivor.after): survivor.reason
        for survivor in read_survivors()
    }
    for mutant in alive:
        reason = reasons.get((mutant.file, mutant.before, mutant.after), "no reason known")
        say(f"survived: {mutant.name}: {reason}")
    assert killed >= KILLED_AT_LEAST * len(drawn)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("package", STAGES)
def test_no_recorded_mutant_of_a_package_survives_newly(package: str) -> None:
    """A mutant that the tests killed when it was recorded must still be killed.

    If the line of a mutant was rewritten since, the mutant no longer exists. Such mutants are only
    counted and printed.
    """
    fates = fates_of_killed(package)
    killed_before = sum(mutant.is_killed for mutant in read_record() if mutant.package == package)
    say(
        f"{package}: of {killed_before} recorded mutants that were killed {fates.killed} are "
        f"killed, {len(fates.alive)} live, {len(fates.gone)} no longer exist"
    )
    for recorded in fates.gone:
        say(f"rewritten: {recorded.name}")
    assert [recorded.name for recorded in fates.alive] == []
