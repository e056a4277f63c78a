"""A copy of the packages with every mutant of a sample in it.

A mutant is a small change of the code. The switch of `probes` turns one mutant on, and `player` is
the process that plays seeds in the copy. To play the seeds takes hours. Meanwhile the checkout may
change, but the copy does not.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sight.rewriting import NotSwitchable, switched_source
from benchmarks.sight.sampled import ROOT, FoundMutant, SampledMutant, find_mutants
from tests.support.mutation.mutants import JobFolder

COPIED = (
    "protocol",
    "partition_log",
    "coordinator",
    "cluster",
    "results_schema",
    "chaos",
    "explorations",
    "benchmarks/__init__.py",
    "benchmarks/sight/__init__.py",
    "benchmarks/sight/probes.py",
    "benchmarks/sight/player.py",
)
"""Packages and files that a player imports or reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedTree:
    """The copy."""

    folder: Path
    mutants: tuple[SampledMutant, ...]
    """The whole sample. The index of a mutant is its number in the copy."""
    gone: tuple[SampledMutant, ...]
    """The mutants whose place the present code no longer has."""
    not_switchable: dict[str, str]
    """The mutants that cannot become a switch: their ids, with the reasons."""


def build_tree(folder: Path, mutants: Sequence[SampledMutant]) -> SwitchedTree:
    """Copy the packages of the checkout into `folder`, with `mutants` in them."""
    JobFolder(folder, copied=COPIED)  # copies the files; the object itself is not needed
    found, gone = find_mutants(mutants)
    numbers = {mutant.id: number for number, mutant in enumerate(mutants)}
    by_path: dict[str, list[FoundMutant]] = {}
    for found_mutant in found:
        by_path.setdefault(found_mutant.path, []).append(found_mutant)
    refused: dict[str, str] = {}
    for path, in_file in by_path.items():
        source = (ROOT / path).read_text(encoding="utf-8")
        placed = []
        for found_mutant in in_file:
            change = (numbers[found_mutant.mutant.id], found_mutant.source)
            # Try each mutant alone. Otherwise a single mutant that cannot become a switch would
            # make the whole file fail.
            try:
                compile(switched_source(source, [change]), path, "exec", dont_inherit=True)
            except (NotSwitchable, SyntaxError) as error:
                refused[found_mutant.mutant.id] = str(error)
            else:
                placed.append(change)
        (folder / path).write_text(switched_source(source, placed), encoding="utf-8")
    return SwitchedTree(
        folder=folder, mutants=tuple(mutants), gone=tuple(gone), not_switchable=refused
    )


def start_player(
    tree: SwitchedTree, spaces: Sequence[str], workers: int
) -> subprocess.Popen[bytes]:
    """Start the process that plays seeds in the copy. It reads orders, and writes answers."""
    # With PYTHONPATH, the player could import modules of the checkout that the copy lacks.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    # Compiled modules are made of the checkout's code, which has no mutants.
    environment["COORDLAB_COMPILED"] = "0"
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sight.player", str(workers), *spaces],
        cwd=tree.folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
