"""Which mutants of a sample the unit tests kill: a column of docs/SIGHT.md.

A step of its own, which takes hours and goes on where it was. Data flow: sample ->
tests.support.mutation.recorded_mutants -> samples/killed_<n>.json.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.sight.sampled import SAMPLES, SampledMutant, find_mutants
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
    """Run the tests of its top-level package against each mutant that was not tried, one by one."""
    killed = read_killed(path)
    found, _ = find_mutants([each for each in mutants if each.id not in killed])
    for each in found:
        mutant = each.mutant
        drawn = Drawn(
            file=each.path.removeprefix(f"{mutant.package}/"),
            source=each.source,
            line=0,
            scope=mutant.scope,
            before=mutant.before,
            after=mutant.after,
        )
        top = mutant.package.partition("/")[0]
        (killed[mutant.id],) = run(top, [(mutant.package, drawn)])
        content = msgspec.json.format(msgspec.json.encode(dict(sorted(killed.items()))), indent=1)
        path.write_bytes(content + b"\n")
        say(f"{mutant.id} {'killed' if killed[mutant.id] else 'lives'}: {mutant.place}")
