"""Samples of mutants: drawn once by a seed, kept as files, found again in code that has moved.

A mutant is found by its function, the line before and after its change, and its number among equal
ones; if the line was reworded, by the smallest changed expression of the function. Data flow:
tests.support.mutation.draw -> samples/sample_<n>.jsonl -> Found.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.measurement import commit
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


class SampleHead(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a sample's file: how the sample was drawn, and from which commit."""

    sample: int
    seed: int
    per_package: int
    commit: str


class SampledMutant(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant of a sample.

    Shape: `file` is relative to `package` when the sample was drawn; `scope` is the qualified name
    of the function or class; `before` and `after` are the lines, `segment` and `mutation` the
    smallest expression or statement that differs. `nth` counts, from 0, the mutants of the package
    with this scope, before and after; `segment_nth` those of the scope with this segment and
    mutation, of `segment_count` in all.
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
    """A mutant of a sample in the present code: file relative to the root, changed source."""

    mutant: SampledMutant
    path: str
    source: str


@dataclass(frozen=True, slots=True)
class _Package:
    """Every mutant of a package in the present code."""

    name: str
    mutants: tuple[Drawn, ...]
    _texts: dict[int, tuple[str, str]] = field(default_factory=dict)

    def text(self, index: int, root: Path) -> tuple[str, str]:
        """Return segment and mutation of one mutant; computed once."""
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
    head = SampleHead(sample=number, seed=seed, per_package=count, commit=commit())
    mutants: list[SampledMutant] = []
    for package in (_package(root, name) for name in packages):
        for drawn in sample(root / package.name, count, seed):
            index = package.mutants.index(drawn)
            alike = [n for n, each in enumerate(package.mutants) if _lines(each) == _lines(drawn)]
            text = package.text(index, root)
            in_scope = _with_text(package, root, drawn.scope, text)
            mutants.append(
                SampledMutant(
                    id=f"{number}-{len(mutants) + 1:03}",
                    package=package.name,
                    file=drawn.file,
                    scope=drawn.scope,
                    before=drawn.before,
                    after=drawn.after,
                    nth=alike.index(index),
                    segment=text[0],
                    mutation=text[1],
                    segment_nth=in_scope.index(index),
                    segment_count=len(in_scope),
                )
            )
    return head, mutants


def sample_path(number: int) -> Path:
    """Return the file of a sample."""
    return SAMPLES / f"sample_{number}.jsonl"


def write_sample_file(path: Path, head: SampleHead, mutants: Sequence[SampledMutant]) -> None:
    """Write a sample.

    Raises: FileExistsError if there is one: a sample is drawn once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for each in (head, *mutants):
            file.write(msgspec.json.encode(each) + b"\n")


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
    """Return the mutants whose place is found in the code at `root`, and the others."""
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
    alike = [
        n
        for n, each in enumerate(package.mutants)
        if _lines(each) == (mutant.scope, mutant.before, mutant.after)
    ]
    if mutant.nth < len(alike):
        return alike[mutant.nth]
    in_scope = _with_text(package, root, mutant.scope, (mutant.segment, mutant.mutation))
    # Another number of places: it is unknown which of them is the mutant's.
    return in_scope[mutant.segment_nth] if len(in_scope) == mutant.segment_count else None


def _with_text(package: _Package, root: Path, scope: str, text: tuple[str, str]) -> list[int]:
    return [
        n
        for n, each in enumerate(package.mutants)
        if each.scope == scope and package.text(n, root) == text
    ]


def _package(root: Path, name: str) -> _Package:
    return _Package(name, tuple(_every(root / name)))


def _every(folder: Path) -> Iterator[Drawn]:
    for path in sorted(folder.glob("**/*.py")):
        if path.name not in LEFT_ALONE:
            yield from every_mutant(folder, path)


def _lines(drawn: Drawn) -> tuple[str, str, str]:
    return drawn.scope, drawn.before, drawn.after


def counts_by_package(mutants: Sequence[SampledMutant]) -> dict[str, int]:
    """Return the number of mutants of each package, in the sample's order."""
    return dict(Counter(each.package for each in mutants))
