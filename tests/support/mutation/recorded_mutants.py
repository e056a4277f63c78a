"""Check that a refactoring has not made the tests weaker.

A mutant is a copy of the code with one small change, such as `<` to `<=`. If a test fails with the
change, the tests have killed the mutant; otherwise the mutant is alive.

At one time, a random sample of mutants of every package was drawn, and the tests were run on each
of these mutants. The file `recorded_mutants.jsonl` says for each mutant whether the tests killed
it. When code has been moved or reworded since, the tests must still kill the same mutants.
`python -m tests.support.mutation.recorded_mutants` looks for the recorded mutants in the present
code, runs the tests on them, and compares the results with the record.

The line of a mutant may be in another file by now. So a mutant is recognised by its package, by its
scope, and by its line before and after the change. The scope is the name of the function or class
around the change.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from tests.support.mutation.draw import LEFT_ALONE, CodeMutant, every_mutant, sample
from tests.support.mutation.mutant_runs import Job, Run
from tests.support.mutation.mutants import JobFolder
from tests.support.soak import code_id, has_result, load_or_compute

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "tests" / "soak" / "recorded_mutants.jsonl"
DRAWN_PER_PACKAGE = 40
DRAW_SEED = 17
SOAK_PART = "mutants"
"""The result of each mutant is saved in the folder `.soak/mutants/`.

(The soak is a set of very long tests.) After an interruption, only missing results are computed.
"""
# The selection of tests for pytest: only tests that have none of these marks.
_QUICK = "not ray and not spark and not browser and not soak and not slow"
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "protocol": (
        ("tests/protocol", "-m", _QUICK),
        ("tests/coordinator", "tests/partition_log", "-m", _QUICK),
    ),
    "partition_log": (("tests/partition_log", "-m", _QUICK),),
    "coordinator": (
        # test_mutants compares the text of the code with a list. So it would fail with every
        # mutant, and would prove nothing about the other tests.
        ("tests/coordinator", "--ignore=tests/coordinator/test_mutants.py", "-m", _QUICK),
    ),
    "cluster": (("tests/cluster", "-m", _QUICK), ("tests/chaos", "-m", _QUICK)),
    "chaos": (("tests/chaos", "-m", _QUICK),),
    "pipeline": (
        ("tests/pipeline", "-m", _QUICK),
        ("tests/pipeline", "-m", "spark and not browser"),
    ),
    "coordlab": (("tests/coordlab", "-m", _QUICK),),
}
"""For each package the tests that may kill its mutants, as arguments of pytest.

Each tuple is a stage. The tests of the first stage run on all mutants. The tests of a later stage
run only on the mutants that are still alive after all earlier stages.
"""
SEARCHED_FOLDERS = (*STAGES, "results_schema", "scripts")
"""Folders into which the code of a package may have moved since the record.

The record has no mutants of the last two folders.
"""
Place = tuple[str, CodeMutant]
"""A folder, and a mutant of a file in this folder: `mutant.file` is relative to the folder."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the record: one mutant, and whether the tests killed it when it was recorded."""

    package: str
    # The file in which the mutant was drawn, relative to the package.
    file: str
    # The function or class around the change: "Server._answer" for a method.
    scope: str
    # The changed line before and after the change.
    before: str
    after: str
    # A function may contain the same line twice. Then two mutants look alike: the mutant of the
    # first line has 0 here, and the mutant of the second line has 1.
    nth: int
    is_killed: bool

    @property
    def name(self) -> str:
        """Return the file, the scope and the change, as a line for people."""
        return f"{self.package}/{self.file} {self.scope}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The fates of the mutants of one package that the tests killed at the time of the record."""

    # The number of mutants that the tests still kill.
    killed: int
    # Mutants that the tests no longer kill.
    alive: tuple[Recorded, ...]
    # Mutants whose line no longer exists, because it was removed or rewritten.
    gone: tuple[Recorded, ...]


def main() -> None:
    """Run the tests on the recorded mutants; with `--draw`, record new ones instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--draw", action="store_true", help="draw mutants and append them to the record"
    )
    parser.add_argument("--package", choices=STAGES, action="append")
    arguments = parser.parse_args()
    packages = arguments.package or list(STAGES)
    if arguments.draw:
        for package in packages:
            write_sample(package)
        return
    any_is_alive = False
    for package in packages:
        fates = fates_of_killed(package)
        print(
            f"{package}: {fates.killed} killed, {len(fates.alive)} live, "
            f"{len(fates.gone)} no longer exist",
            flush=True,
        )
        for recorded in fates.alive:
            print(f"  lives: {recorded.name}")
        for recorded in fates.gone:
            print(f"  rewritten: {recorded.name}")
        if fates.alive:
            any_is_alive = True
    sys.exit(1 if any_is_alive else 0)


def write_sample(package: str) -> None:
    """Draw mutants of one package, run the tests on each, and append the results to the record.

    Older lines of the package stay in the record, until a person removes them.
    """
    drawn = sample(ROOT / package, DRAWN_PER_PACKAGE, DRAW_SEED)
    killed = run_mutants(package, [(package, mutant) for mutant in drawn])
    possible = list(_possible_mutants(package))
    with RECORD.open("a", encoding="utf-8") as file:
        for mutant, is_killed in zip(drawn, killed, strict=True):
            alike = [other for other in possible if _looks_like(other, mutant)]
            # Mutants that look alike differ in `source`, the text of the whole changed file.
            nth = [other.source for other in alike].index(mutant.source)
            recorded = Recorded(
                package=package,
                file=mutant.file,
                scope=mutant.scope,
                before=mutant.before,
                after=mutant.after,
                nth=nth,
                is_killed=is_killed,
            )
            file.write(json.dumps(msgspec.to_builtins(recorded)) + "\n")
    print(f"{package}: {sum(killed)} of {len(drawn)} killed", flush=True)


def fates_of_killed(package: str) -> Fates:
    """Run the tests again on the package's mutants that they killed at the time of the record."""
    killed_before = [
        recorded for recorded in read_record() if recorded.package == package and recorded.is_killed
    ]
    # The package itself comes first. Code that has left it may be in one of the other folders.
    folders = [package, *(folder for folder in SEARCHED_FOLDERS if folder != package)]
    possible = [(folder, list(_possible_mutants(folder))) for folder in folders]
    existing: list[Recorded] = []
    places: list[Place] = []
    gone: list[Recorded] = []
    for recorded in killed_before:
        place = find(recorded, possible)
        if place is None:
            gone.append(recorded)
        else:
            existing.append(recorded)
            places.append(place)
    still_killed = run_mutants(package, places)
    alive = [
        recorded
        for recorded, is_killed in zip(existing, still_killed, strict=True)
        if not is_killed
    ]
    return Fates(killed=sum(still_killed), alive=tuple(alive), gone=tuple(gone))


def read_record() -> list[Recorded]:
    """Return all recorded mutants, whether they were killed or not."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Recorded) for line in lines]


def find(recorded: Recorded, possible: Sequence[tuple[str, Sequence[CodeMutant]]]) -> Place | None:
    """Return the recorded mutant's place in the present code; None if its line is gone.

    `possible` has folders, each with all its possible mutants. The folders are searched in this
    order, and the first folder that has the mutant is taken.
    """
    for folder, mutants in possible:
        with_same_line = [
            mutant
            for mutant in mutants
            if mutant.before == recorded.before and mutant.after == recorded.after
        ]
        in_scope = [mutant for mutant in with_same_line if mutant.scope == recorded.scope]
        if not in_scope:
            # The function may have moved to another class. So compare only the names of the
            # functions, without their classes.
            function = _last_part(recorded.scope)
            in_scope = [mutant for mutant in with_same_line if _last_part(mutant.scope) == function]
        if in_scope:
            # Some of several equal lines may have been removed since. Then `nth` is too large.
            return folder, in_scope[min(recorded.nth, len(in_scope) - 1)]
        if len(with_same_line) == 1:
            # The function was renamed. As the folder has the line only once, it is the right line.
            return folder, with_same_line[0]
    return None


def _last_part(scope: str) -> str:
    """Return a function's name without its class: `Server._answer` -> `_answer`."""
    return scope.rpartition(".")[2]


def run_mutants(package: str, mutants: Sequence[Place]) -> list[bool]:
    """Run the package's tests, stage by stage; return for each mutant whether a test failed.

    The result of each mutant is saved as soon as it is known. After an interruption, the next call
    of this function runs only the mutants that have no saved result.
    """
    killed = [False] * len(mutants)
    for stage, tests in enumerate(STAGES[package]):
        alive = [index for index, is_killed in enumerate(killed) if not is_killed]
        keys = {index: _result_key(package, stage, mutants[index]) for index in alive}
        unsaved = [index for index in alive if not has_result(SOAK_PART, keys[index])]
        # `runs` is a generator. It runs the tests on the next unsaved mutant only when it is asked
        # for the next result. The loop below has the same order of mutants, and asks for one result
        # for each unsaved mutant: `load_or_compute` computes only what is not saved.
        runs = _run_one_by_one(tests, [mutants[index] for index in unsaved])
        for index in alive:
            killed[index] = load_or_compute(
                SOAK_PART, keys[index], bool, partial(_next_is_killed, runs)
            )
    return killed


def _next_is_killed(runs: Iterator[Run]) -> bool:
    """Run the tests on the next mutant of `runs`. Return False only if every test passed."""
    return not next(runs).is_passed


def _run_one_by_one(tests: tuple[str, ...], places: Sequence[Place]) -> Iterator[Run]:
    """Run the tests on one mutant after another, and yield the result of each mutant."""
    # A JobFolder would copy the packages and run all tests once, even without any mutant.
    if not places:
        return
    jobs = [
        Job(tests=tests, path=f"{folder}/{mutant.file}", source=mutant.source)
        for folder, mutant in places
    ]
    with tempfile.TemporaryDirectory(prefix="mutants-") as copy:
        yield from JobFolder(Path(copy)).run(jobs)


def _result_key(package: str, stage: int, place: Place) -> str:
    """Return the name under which the result of a mutant in one stage is saved.

    A change of the code or of the tests changes the name. So no result of older code is used.
    """
    folder, mutant = place
    code = code_id(("tests", *SEARCHED_FOLDERS))
    digest = hashlib.sha256(f"{code}{folder}{mutant.file}{mutant.source}".encode())
    return f"recorded-{package}-{stage}-{digest.hexdigest()[:16]}"


def _possible_mutants(package: str) -> Iterator[CodeMutant]:
    """Yield a mutant for each small change that is possible in the package."""
    folder = ROOT / package
    for path in sorted(folder.glob("**/*.py")):
        if path.name not in LEFT_ALONE:
            yield from every_mutant(folder, path)


def _looks_like(mutant: CodeMutant, other: CodeMutant) -> bool:
    """Return True if the record could not tell the mutants apart, except by `nth`."""
    return (mutant.scope, mutant.before, mutant.after) == (other.scope, other.before, other.after)


if __name__ == "__main__":
    main()
