"""Records: the results of each mutant of a sample, as files.

A record says of each mutant (a small change of the code) whether the search has found it, and how.
`fates` makes the records, `sitting` continues them with more seeds, and `sight_page` shows them.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.sight.player import STOPS_MAX

RECORDS = Path(__file__).with_name("records")
FIRST = "before"
"""Name of the record with which the other records of a sample are compared."""


class Sight(StrEnum):
    """How far the search came with a mutant. The values are stored in records.

    If a mutant DIFFERS, the trace of some run has changed, but no checker has reported anything.
    """

    GONE = "its place is gone"
    NOT_SWITCHABLE = "its place cannot be a switch"
    UNREACHED = "reached by no seed"
    SAME = "reached, every trace is the same"
    DIFFERS = "differs, and nobody minds"
    STOPPED = "its runs are over the bound"
    FOUND = "found"


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one mutant.

    A mutant is no longer played after a seed has found it, or after the runs of too many seeds were
    stopped.
    """

    id: str
    sight: Sight
    reached: int = 0
    """The number of seeds with a run that evaluated the mutant's place."""
    first_reached: int | None = None
    """The first seed with a run that evaluated the mutant's place."""
    differs: int = 0
    """The number of seeds that had another trace with the mutant than without it."""
    first_differs: int | None = None
    """The first seed that had another trace with the mutant than without it."""
    unknown: int = 0
    """The number of seeds with a run that had the result UNKNOWN."""
    at_import: bool = False
    """True if the place is evaluated when the packages are imported, and so by every seed."""
    stopped_seeds: tuple[int, ...] = ()
    """The seeds whose runs took too long, and were stopped."""
    found_seed: int | None = None
    found_by: tuple[str, ...] = ()
    """The checkers that had a finding at `found_seed`."""
    what: str = ""
    """The finding; or the reason why the mutant is not switchable."""
    cpu_s: float | None = None
    """The CPU time up to the finding; None without a finding."""
    spent_s: float = 0.0
    """The CPU time of all seeds so far."""

    @property
    def is_settled(self) -> bool:
        """True if the mutant is no longer played."""
        return self.found_seed is not None or len(self.stopped_seeds) >= STOPS_MAX


class RecordHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a record's file."""

    name: str
    sample: int
    commit: str
    code: str
    machine: str
    seeds: int
    """The number of seeds that were played. A later sitting of the same code can play more seeds.
    """
    cpu_s: float
    """The CPU time of all runs."""
    sound_not_pass: tuple[int, ...] = ()
    """The seeds whose run without a mutant did not pass."""
    origin: dict[str, str] = {}
    """The digests of code, sample and spaces. A later sitting can continue this record only if all
    digests are unchanged."""


class SightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one version of the code for one sample."""

    head: RecordHead
    fates: tuple[Fate, ...]


def write_record(record: SightRecord, folder: Path = RECORDS) -> Path:
    """Write a record, with a line for each mutant, and return its file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{record.head.name}-sample-{record.head.sample}.jsonl"
    lines = [msgspec.json.encode(entry) for entry in (record.head, *record.fates)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def read_record(name: str, sample: int, folder: Path = RECORDS) -> SightRecord | None:
    """Return one record; None if there is none."""
    path = folder / f"{name}-sample-{sample}.jsonl"
    return _read(path) if path.exists() else None


def read_records(folder: Path = RECORDS) -> tuple[SightRecord, ...]:
    """Return every record, sorted by sample. Of each sample, the record FIRST comes first."""

    def order(record: SightRecord) -> tuple[int, bool, str]:
        head = record.head
        return (head.sample, head.name != FIRST, head.name)

    records = [_read(path) for path in folder.glob("*.jsonl")]
    return tuple(sorted(records, key=order))


def _read(path: Path) -> SightRecord:
    """Return the record in a file: a line with the head, and a line for each mutant."""
    first, *rest = path.read_bytes().splitlines()
    return SightRecord(
        head=msgspec.json.decode(first, type=RecordHead),
        fates=tuple(msgspec.json.decode(line, type=Fate) for line in rest),
    )
