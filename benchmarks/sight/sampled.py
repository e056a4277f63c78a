"""Samples of mutants: drawn once by a seed, stored as files, and found again in later code.

A mutant is a change of one small expression or statement, such as `<` in place of `<=`. A sample is
drawn once and used for months. Meanwhile the code changes: a function moves to another file, for
example. So a mutant is found again in one of two ways:

1. By the name of its function, and the text of its line without and with the change. Several
   mutants can have the same name and texts. They are numbered in the order of the code, and the
   mutant is found by its number.
2. If the code has no such line any more, by the function and the smallest expression that differs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.measurement import commit as current_commit
from benchmarks.sight.rewriting import changed_text
from tests.support.mutation.draw import LEFT_ALONE, CodeMutant, every_mutant, sample

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = Path(__file__).with_name("samples")
PACKAGES = (
    "coordinator",
    "partition_log",
    "cluster/broker",
    "cluster/controller",
    "cluster/client",
)
PER_PACKAGE = 30
"""Default number of mutants that are drawn from each package."""


class SampleHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a sample's file: how the sample was drawn, and from which commit."""

    sample: int
    seed: int
    per_package: int
    commit: str


class SampledMutant(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant of a sample."""

    id: str
    package: str
    file: str
    """The path in the package at the time when the sample was drawn."""
    scope: str
    """The qualified name of the function or class."""
    before: str
    """The line without the change."""
    after: str
    """The line with the change."""
    nth: int
    """The number of the mutant, from 0, among the mutants of the package that have equal `scope`,
    `before` and `after`."""
    segment: str
    """The smallest expression or statement that differs, such as `a < b`."""
    mutation: str
    """The text to which the segment is changed, such as `a <= b`."""
    segment_nth: int
    """The number of the mutant, from 0, among the mutants of the package that have equal `scope`,
    `segment` and `mutation`."""
    segment_count: int
    """The number of mutants of the package that have this `scope`, `segment` and `mutation`."""

    @property
    def place(self) -> str:
        """File and function, for people."""
        return f"{self.package}/{self.file} {self.scope}".rstrip()

    @property
    def change(self) -> str:
        """The change in one line, for people."""
        return f"`{self.segment}` -> `{self.mutation}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMutant:
    """A mutant of a sample, with its place in the present code."""

    mutant: SampledMutant
    path: str
    """The file of the mutant, relative to the root."""
    source: str
    """The whole source of the file, with the change."""


@dataclass(frozen=True, slots=True)
class _Package:
    """Every mutant of a package in the present code."""

    name: str
    mutants: tuple[CodeMutant, ...]
    _texts: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The results of `text` so far, by the index of the mutant."""

    def text(self, index: int, root: Path) -> tuple[str, str]:
        """Return segment and mutation of one mutant, which are computed at the first call."""
        if index not in self._texts:
            drawn = self.mutants[index]
            source = (root / self.name / drawn.file).read_text(encoding="utf-8")
            self._texts[index] = changed_text(source, drawn.source)
        return self._texts[index]


def draw_sample(
    number: int,
    seed: int,
    *,
    count: int = PER_PACKAGE,
    root: Path = ROOT,
    packages: Sequence[str] = PACKAGES,
) -> tuple[SampleHead, list[SampledMutant]]:
    """Draw `count` mutants of each package."""
    head = SampleHead(sample=number, seed=seed, per_package=count, commit=current_commit())
    mutants: list[SampledMutant] = []
    for package_name in packages:
        package = _package(root, package_name)
        # `package.mutants` has all mutants of the package, including the drawn ones.
        for drawn in sample(root / package.name, count, seed):
            index = package.mutants.index(drawn)
            same_lines = _with_lines(package, _scope_and_lines(drawn))
            segment, mutation = package.text(index, root)
            same_text = _with_text(package, root, drawn.scope, (segment, mutation))
            mutants.append(
                SampledMutant(
                    id=f"{number}-{len(mutants) + 1:03}",
                    package=package.name,
                    file=drawn.file,
                    scope=drawn.scope,
                    before=drawn.before,
                    after=drawn.after,
                    nth=same_lines.index(index),
                    segment=segment,
                    mutation=mutation,
                    segment_nth=same_text.index(index),
                    segment_count=len(same_text),
                )
            )
    return head, mutants


def sample_path(number: int) -> Path:
    """Return the file of a sample."""
    return SAMPLES / f"sample_{number}.jsonl"


def write_sample_file(path: Path, head: SampleHead, mutants: Sequence[SampledMutant]) -> None:
    """Write a sample.

    Raises: FileExistsError if the file exists, because a sample must not change.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for entry in (head, *mutants):
            file.write(msgspec.json.encode(entry) + b"\n")


def read_sample(path: Path) -> tuple[SampleHead, tuple[SampledMutant, ...]]:
    """Return a sample.

    Raises: FileNotFoundError.
    """
    first, *rest = path.read_bytes().splitlines()
    mutants = tuple(msgspec.json.decode(line, type=SampledMutant) for line in rest)
    return msgspec.json.decode(first, type=SampleHead), mutants


def find_mutants(
    mutants: Sequence[SampledMutant], *, root: Path = ROOT
) -> tuple[list[FoundMutant], list[SampledMutant]]:
    """Return the mutants that exist in the code at `root`, and the mutants whose place is gone."""
    packages: dict[str, _Package] = {}
    found, gone = [], []
    for mutant in mutants:
        if mutant.package not in packages:
            packages[mutant.package] = _package(root, mutant.package)
        package = packages[mutant.package]
        index = _index_of(mutant, package, root)
        if index is None:
            gone.append(mutant)
            continue
        drawn = package.mutants[index]
        found.append(
            FoundMutant(mutant=mutant, path=f"{package.name}/{drawn.file}", source=drawn.source)
        )
    return found, gone


def _index_of(mutant: SampledMutant, package: _Package, root: Path) -> int | None:
    """Return the index of a sample's mutant in the package's mutants; None if its place is gone."""
    same_lines = _with_lines(package, (mutant.scope, mutant.before, mutant.after))
    if mutant.nth < len(same_lines):
        return same_lines[mutant.nth]
    same_text = _with_text(package, root, mutant.scope, (mutant.segment, mutant.mutation))
    # Several mutants can have the same short expression. If there are more or fewer of them than
    # when the sample was drawn, it is not known which of them is meant.
    if len(same_text) != mutant.segment_count:
        return None
    return same_text[mutant.segment_nth]


def _with_lines(package: _Package, lines: tuple[str, str, str]) -> list[int]:
    """Return the indexes of the mutants that have these results of `_scope_and_lines`."""
    return [
        index for index, drawn in enumerate(package.mutants) if _scope_and_lines(drawn) == lines
    ]


def _with_text(package: _Package, root: Path, scope: str, text: tuple[str, str]) -> list[int]:
    """Return the indexes of the mutants with this scope, and with this segment and mutation."""
    return [
        index
        for index, drawn in enumerate(package.mutants)
        if drawn.scope == scope and package.text(index, root) == text
    ]


def _package(root: Path, name: str) -> _Package:
    """Return a package of the code at `root`, with all its mutants."""
    return _Package(name, tuple(_every_mutant_in(root / name)))


def _every_mutant_in(folder: Path) -> Iterator[CodeMutant]:
    """Yield every mutant of a folder's modules, except those in LEFT_ALONE."""
    for path in sorted(folder.glob("**/*.py")):
        if path.name not in LEFT_ALONE:
            yield from every_mutant(folder, path)


def _scope_and_lines(drawn: CodeMutant) -> tuple[str, str, str]:
    """Return the scope, and the line before and after the change."""
    return drawn.scope, drawn.before, drawn.after


def counts_by_package(mutants: Sequence[SampledMutant]) -> dict[str, int]:
    """Return the number of mutants of each package, in the sample's order."""
    return dict(Counter(mutant.package for mutant in mutants))
