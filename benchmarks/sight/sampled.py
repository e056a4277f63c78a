"""Samples of mutants: drawn once by a seed, stored as files, and found again in later code.

A mutant is a change of one small expression or statement, such as `<` in place of `<=`. A sample is
drawn once and used for months, while the code changes: a function moves to another file or to
another line. So a mutant is found again in one of two ways:

1. by the name of its function, and the text of its line before and after the change. If several
   mutants have all of these in common, they are counted in the order of the code, and the mutant is
   the one with the same number as before;
2. if later code has no such line, by the function and the smallest changed expression.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.measurement import commit as current_commit
from benchmarks.sight.rewriting import changed_text
from tests.support.mutation.draw import LEFT_ALONE, Drawn, every_mutant, sample

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
    """First line of a sample's file: how the sample was drawn, and from which commit."""

    sample: int
    seed: int
    per_package: int
    commit: str


class SampledMutant(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant of a sample.

    - `file`: the path in `package` at the time when the sample was drawn.
    - `scope`: the qualified name of the function or class.
    - `before`, `after`: the line without and with the change.
    - `segment`, `mutation`: the smallest expression or statement that differs, without and with the
      change.
    - `nth`: the mutant's number, from 0, among the package's mutants with the same `scope`,
      `before` and `after`.
    - `segment_nth`: its number, from 0, among the `segment_count` mutants with the same `scope`,
      `segment` and `mutation`.
    """

    id: str
    package: str
    file: str
    scope: str
    before: str
    after: str
    nth: int
    segment: str
    mutation: str
    segment_nth: int
    segment_count: int

    @property
    def place(self) -> str:
        """Return file and function, for people."""
        return f"{self.package}/{self.file} {self.scope}".rstrip()

    @property
    def change(self) -> str:
        """Return the change in one line, for people."""
        return f"`{self.segment}` -> `{self.mutation}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMutant:
    """A mutant of a sample in the present code.

    `path` is its file, relative to the root; `source` is the whole source with the change.
    """

    mutant: SampledMutant
    path: str
    source: str


@dataclass(frozen=True, slots=True)
class _Package:
    """Every mutant of a package in the present code."""

    name: str
    mutants: tuple[Drawn, ...]
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
        # `sample` draws from all mutants of the package, so each drawn mutant is also in
        # `package.mutants`.
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
    # An expression is short, so several mutants can have the same one. If their number has changed
    # since the sample was drawn, it is not known which of them is meant.
    return same_text[mutant.segment_nth] if len(same_text) == mutant.segment_count else None


def _with_lines(package: _Package, lines: tuple[str, str, str]) -> list[int]:
    """Return the indexes of the mutants with these lines (a result of `_scope_and_lines`)."""
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


def _every_mutant_in(folder: Path) -> Iterator[Drawn]:
    """Yield every mutant of a folder's modules, except those in LEFT_ALONE."""
    for path in sorted(folder.glob("**/*.py")):
        if path.name not in LEFT_ALONE:
            yield from every_mutant(folder, path)


def _scope_and_lines(drawn: Drawn) -> tuple[str, str, str]:
    """Return the scope, and the line before and after the change."""
    return drawn.scope, drawn.before, drawn.after


def counts_by_package(mutants: Sequence[SampledMutant]) -> dict[str, int]:
    """Return the number of mutants of each package, in the sample's order."""
    return dict(Counter(mutant.package for mutant in mutants))
