"""Which mutants of a sample the unit tests kill: a column of docs/SIGHT.md.

A step of its own, which takes hours and goes on where it was. Data flow: sample ->
tests.support.mutation.recorded_mutants -> samples/killed_<n>.json.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.sight.sampled import SAMPLES, FoundMutant, SampledMutant, find_mutants
from tests.support.mutation.draw import Drawn
from tests.support.mutation.recorded_mutants import Place, run_mutants

Killed = dict[str, bool]
"""Id of a mutant -> whether a test fails with it. Who is not in it was not tried."""


def killed_path(sample: int) -> Path:
    """Return where the column of a sample is kept."""
    return SAMPLES / f"killed_{sample}.json"


def read_killed(path: Path) -> Killed:
    """Return what is known; nothing without a file."""
    return msgspec.json.decode(path.read_bytes(), type=Killed) if path.exists() else {}


def try_unit_tests(
    path: Path,
    mutants: Sequence[SampledMutant],
    *,
    run: Callable[[str, Sequence[Place]], list[bool]] = run_mutants,
    say: Callable[[str], None] = print,
) -> None:
    """Run the tests of each top-level package against its mutants that were not tried.

    `run` keeps each mutant's fate at once, so that an interruption loses one; the file is written
    after each package.
    """
    killed = read_killed(path)
    found, _ = find_mutants([each for each in mutants if each.id not in killed])
    by_package: dict[str, list[FoundMutant]] = {}
    for each in found:
        by_package.setdefault(each.mutant.package.partition("/")[0], []).append(each)
    for package, of_package in by_package.items():
        fates = run(package, [_place_of(each) for each in of_package])
        for each, is_killed in zip(of_package, fates, strict=True):
            killed[each.mutant.id] = is_killed
        content = msgspec.json.format(msgspec.json.encode(dict(sorted(killed.items()))), indent=1)
        path.write_bytes(content + b"\n")
        say(f"{package}: {sum(fates)} of {len(fates)} killed")


def _place_of(found: FoundMutant) -> Place:
    mutant = found.mutant
    drawn = Drawn(
        file=found.path.removeprefix(f"{mutant.package}/"),
        source=found.source,
        line=0,
        scope=mutant.scope,
        before=mutant.before,
        after=mutant.after,
    )
    return mutant.package, drawn
