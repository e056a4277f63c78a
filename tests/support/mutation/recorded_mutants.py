"""A sample of mutants of every package, drawn once, and which of them the tests killed.

A mutant is the code with one small change. The tests kill it if one of them fails; otherwise it
lives. After a change that moves or rewords code, the tests must kill the same mutants as before. A
mutant is found again by its package, its scope (function or class) and its line before and after
the change; the line may be in another file now. `python -m tests.support.mutation.recorded_mutants`
finds the recorded mutants, runs the tests on them and compares.
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

from tests.support.mutation.draw import LEFT_ALONE, Drawn, every_mutant, sample
from tests.support.mutation.mutant_runs import Job, Run
from tests.support.mutation.mutants import JobFolder
from tests.support.soak import code_id, has_result, load_or_compute

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "tests" / "soak" / "recorded_mutants.jsonl"
# The number of mutants that are drawn of each package, and the seed of the draw.
PER_PACKAGE, SEED = 40, 17
PART = "mutants"
_QUICK = "not ray and not spark and not browser and not soak and not slow"
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "protocol": (
        ("tests/protocol", "-m", _QUICK),
        ("tests/coordinator", "tests/partition_log", "-m", _QUICK),
    ),
    "partition_log": (("tests/partition_log", "-m", _QUICK),),
    "coordinator": (
        # test_mutants compares the text of the code with a list, so it would fail with any mutant.
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
"""Tests of each package in stages (pytest's arguments).

A later stage runs only on mutants that the earlier stages did not kill.
"""
FOLDERS = (*STAGES, "results_schema", "scripts")
Place = tuple[str, Drawn]  # a folder, and a mutant whose file is relative to this folder


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant, and whether the tests killed it at the commit of the record."""

    package: str
    file: str  # below the package, when it was drawn
    scope: str
    before: str
    after: str
    nth: int  # index among the mutants of its package with equal `scope`, `before` and `after`
    is_killed: bool

    @property
    def name(self) -> str:
        """Return place and change, for people."""
        return f"{self.package}/{self.file} {self.scope}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The present results of those recorded mutants of a package that the tests killed.

    `killed` is the number of mutants that the tests still kill. `alive` are the mutants that they
    no longer kill. `gone` are the mutants whose line was removed or rewritten.
    """

    killed: int
    alive: tuple[Recorded, ...]
    gone: tuple[Recorded, ...]


def main() -> None:
    """Draw and run the sample, or run the recorded one against the present code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw anew and write the record")
    parser.add_argument("--package", choices=STAGES, action="append")
    arguments = parser.parse_args()
    packages = arguments.package or list(STAGES)
    if arguments.draw:
        for package in packages:
            write_sample(package)
        return
    lives = False
    for package in packages:
        fates = newly_alive(package)
        # "No longer exist": the mutant's line was rewritten or removed.
        print(
            f"{package}: {fates.killed} killed, {len(fates.alive)} live, "
            f"{len(fates.gone)} no longer exist",
            flush=True,
        )
        for recorded in fates.alive:
            print(f"  lives: {recorded.name}")
        for recorded in fates.gone:
            print(f"  rewritten: {recorded.name}")
        lives |= bool(fates.alive)
    sys.exit(lives)  # True becomes exit code 1: a mutant lives


def write_sample(package: str) -> None:
    """Draw mutants of one package, run the tests on each, and add the results to the record."""
    drawn = sample(ROOT / package, PER_PACKAGE, SEED)
    killed = run_mutants(package, [(package, mutant) for mutant in drawn])
    possible = list(_every(package))
    with RECORD.open("a", encoding="utf-8") as file:
        for mutant, is_killed in zip(drawn, killed, strict=True):
            alike = [candidate for candidate in possible if _key(candidate) == _key(mutant)]
            # A function may have the same line twice, so several mutants may have equal keys. They
            # differ in `source`, the text of the whole file with the change.
            nth = next(
                number
                for number, candidate in enumerate(alike)
                if candidate.source == mutant.source
            )
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


def newly_alive(package: str) -> Fates:
    """Find the recorded mutants of a package that were killed, and run the tests on them."""
    killed_before = [
        recorded for recorded in read_record() if recorded.package == package and recorded.is_killed
    ]
    # Code that left a package is searched for in the packages that it may have moved to.
    possible = [
        (folder, list(_every(folder)))
        for folder in (package, *(other for other in FOLDERS if other != package))
    ]
    places = [(recorded, find(recorded, possible)) for recorded in killed_before]
    existing = [(recorded, place) for recorded, place in places if place is not None]
    killed = run_mutants(package, [place for _, place in existing])
    return Fates(
        killed=sum(killed),
        alive=tuple(
            recorded
            for (recorded, _), is_killed in zip(existing, killed, strict=True)
            if not is_killed
        ),
        gone=tuple(recorded for recorded, place in places if place is None),
    )


def read_record() -> list[Recorded]:
    """Return the recorded mutants."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Recorded) for line in lines]


def find(recorded: Recorded, possible: Sequence[tuple[str, Sequence[Drawn]]]) -> Place | None:
    """Return the place of the mutant in the present code; None if its line was removed.

    If only one place has the mutant's lines, it is the right one even if its scope has another
    name.

    possible: all possible mutants of each package, first those of the package in the record.
    """
    for folder, mutants in possible:
        alike = [
            mutant
            for mutant in mutants
            if (mutant.before, mutant.after) == (recorded.before, recorded.after)
        ]
        # If no scope is equal, the function may have moved to another class. Then only the last
        # part of the scope, the function's name, must be equal.
        name = recorded.scope.rpartition(".")[2]
        in_scope = [mutant for mutant in alike if mutant.scope == recorded.scope] or [
            mutant for mutant in alike if mutant.scope.rpartition(".")[2] == name
        ]
        if in_scope:
            # Some of the equal lines may have been removed since, so `nth` may be too large.
            return folder, in_scope[min(recorded.nth, len(in_scope) - 1)]
        if len(alike) == 1:
            return folder, alike[0]
    return None


def run_mutants(package: str, mutants: Sequence[Place]) -> list[bool]:
    """Run the stages of a package; return for each mutant whether a test failed.

    Each result is saved as soon as it is known. After an interruption only the other mutants are
    run.
    """
    killed = [False] * len(mutants)
    for stage, tests in enumerate(STAGES[package]):
        alive = [number for number, is_killed in enumerate(killed) if not is_killed]
        keys = {number: _key_of(package, stage, mutants[number]) for number in alive}
        # `runs` is lazy. It has only the mutants without a saved result, in the order in which the
        # loop below asks for them.
        runs = _runs(
            tests, [mutants[number] for number in alive if not has_result(PART, keys[number])]
        )
        for number in alive:
            killed[number] = load_or_compute(
                PART, keys[number], bool, partial(_is_killed_next, runs)
            )
    return killed


def _is_killed_next(runs: Iterator[Run]) -> bool:
    """Run the tests on the next mutant of `runs`, and return True if a test failed."""
    return not next(runs).is_passed


def _runs(tests: tuple[str, ...], places: Sequence[Place]) -> Iterator[Run]:
    """Yield the result of the tests on each mutant, one run at a time."""
    if not places:
        return
    jobs = [
        Job(tests=tests, path=f"{folder}/{mutant.file}", source=mutant.source)
        for folder, mutant in places
    ]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        yield from JobFolder(Path(folder)).run(jobs)


def _key_of(package: str, stage: int, place: Place) -> str:
    """Return the key of a mutant's result, which depends on the code and the tests."""
    about = (code_id(("tests", *FOLDERS)), place[0], place[1].file, place[1].source)
    digest = hashlib.sha256("".join(about).encode())
    return f"recorded-{package}-{stage}-{digest.hexdigest()[:16]}"


def _every(package: str) -> Iterator[Drawn]:
    """Yield all possible mutants of a package."""
    folder = ROOT / package
    for path in sorted(folder.glob("**/*.py")):
        if path.name not in LEFT_ALONE:
            yield from every_mutant(folder, path)


def _key(mutant: Drawn) -> tuple[str, str, str]:
    """Return what the record has of a mutant: its scope and its line before and after."""
    return mutant.scope, mutant.before, mutant.after


if __name__ == "__main__":
    main()
