"""Finds out which mutants of a sample the unit tests kill, for a column of docs/SIGHT.md.

A mutant is a small change of the code, and a test kills it if the test fails with the changed code.
The page compares the mutants that the unit tests kill with those that the search finds. To try
all mutants takes hours. An interrupted trial can be continued.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.sight.sampled import SAMPLES, FoundMutant, SampledMutant, find_mutants
from tests.support.mutation.draw import CodeMutant
from tests.support.mutation.recorded_mutants import Place, run_mutants

Killed = dict[str, bool]
"""Id of a mutant -> True if a test fails with the mutant. Mutants that were not tried are missing.
"""


def killed_path(sample: int) -> Path:
    """Return the file with the results of sample number `sample`."""
    return SAMPLES / f"killed_{sample}.json"


def read_killed(path: Path) -> Killed:
    """Return the results in the file; none if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Killed) if path.exists() else {}


def try_unit_tests(
    path: Path,
    mutants: Sequence[SampledMutant],
    *,
    run: Callable[[str, Sequence[Place]], list[bool]] = run_mutants,
    say: Callable[[str], None] = print,
) -> None:
    """Run the unit tests with each mutant that was not tried yet, and write the results to `path`.

    A mutant is tried with the tests of its top-level package. The file is written after each
    package. But `run` stores the result of each mutant at once in a place of its own, so an
    interruption loses only one result.
    """
    killed = read_killed(path)
    untried = [mutant for mutant in mutants if mutant.id not in killed]
    # A mutant whose place is gone from the code cannot be tried.
    found, _gone = find_mutants(untried)
    by_package: dict[str, list[FoundMutant]] = {}
    for found_mutant in found:
        top_level = found_mutant.mutant.package.partition("/")[0]
        by_package.setdefault(top_level, []).append(found_mutant)
    for package, of_package in by_package.items():
        results = run(package, [_place_of(found_mutant) for found_mutant in of_package])
        for found_mutant, is_killed in zip(of_package, results, strict=True):
            killed[found_mutant.mutant.id] = is_killed
        content = msgspec.json.format(msgspec.json.encode(dict(sorted(killed.items()))), indent=1)
        path.write_bytes(content + b"\n")
        say(f"{package}: {sum(results)} of {len(results)} killed")


def _place_of(found: FoundMutant) -> Place:
    """Return a mutant as `run_mutants` takes it."""
    mutant = found.mutant
    drawn = CodeMutant(
        file=found.path.removeprefix(f"{mutant.package}/"),
        source=found.source,
        line=0,  # `run_mutants` does not use the line
        scope=mutant.scope,
        before=mutant.before,
        after=mutant.after,
    )
    return mutant.package, drawn
