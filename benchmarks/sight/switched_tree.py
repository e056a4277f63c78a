"""A copy of the packages with every mutant of a sample in it, behind the switch of `probes`.

The copy stays as it is while the checkout is edited. Data flow: FoundMutant -> rewritten sources in
a folder -> `player`, a process that plays seeds there.
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
    *("protocol", "partition_log", "coordinator", "cluster", "results_schema", "chaos"),
    *("explorations", "benchmarks/__init__.py", "benchmarks/sight/__init__.py"),
    *("benchmarks/sight/probes.py", "benchmarks/sight/player.py"),
)
"""What a player imports and reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedTree:
    """The copy. Shape: a mutant's number in the copy is its index in the sample."""

    folder: Path
    mutants: tuple[SampledMutant, ...]
    gone: tuple[SampledMutant, ...]
    not_switchable: dict[str, str]
    """Id of a mutant whose place cannot be a choice -> why."""


def build_tree(folder: Path, mutants: Sequence[SampledMutant]) -> SwitchedTree:
    """Copy the packages of the checkout into `folder`, with `mutants` in them."""
    JobFolder(folder, copied=COPIED)
    found, gone = find_mutants(mutants)
    numbers = {each.id: number for number, each in enumerate(mutants)}
    by_path: dict[str, list[FoundMutant]] = {}
    for each in found:
        by_path.setdefault(each.path, []).append(each)
    refused: dict[str, str] = {}
    for path, in_file in by_path.items():
        source = (ROOT / path).read_text(encoding="utf-8")
        placed = []
        for each in in_file:
            change = (numbers[each.mutant.id], each.source)
            try:
                compile(switched_source(source, [change]), path, "exec", dont_inherit=True)
            except (NotSwitchable, SyntaxError) as error:
                refused[each.mutant.id] = str(error)
            else:
                placed.append(change)
        (folder / path).write_text(switched_source(source, placed), encoding="utf-8")
    return SwitchedTree(
        folder=folder, mutants=tuple(mutants), gone=tuple(gone), not_switchable=refused
    )


def start_player(tree: SwitchedTree, space: str, workers: int) -> subprocess.Popen[bytes]:
    """Start the process that plays seeds in the copy; it reads orders and writes answers."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sight.player", space, str(workers)],
        cwd=tree.folder,
        env={**environment, "COORDLAB_COMPILED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
