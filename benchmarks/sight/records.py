"""Records: the results of each mutant of a sample, as files.

A record says for each mutant (a small change of the code) whether the search has found it, and how.
It also says how many seeds were played, so that a later sitting of the same code can go on after
them.

`fates` makes the records, `sitting` continues them, and `sight_page` shows them.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.sight.player import STOPS_MAX

RECORDS = Path(__file__).with_name("records")
FIRST = "before"
"""Name of the record with which the other records of a sample are compared."""


class Sight(StrEnum):
    """The last stage that a mutant has reached in a search. The values are stored in records.

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

    - `reached`: the number of seeds whose run evaluated the mutant's place.
    - `differs`: the number of seeds whose trace differed from the trace without the mutant.
    - `unknown`: the number of seeds whose run had the result UNKNOWN.
    - `at_import`: True if the import of the packages reaches the place, so that every seed does.
    - `found_by`: the checkers that had a finding at `found_seed`.
    - `spent_s`: the CPU time of all seeds so far, with the mutant on.
    - `cpu_s`: the CPU time up to the first finding; None if there is none.

    After `found_seed`, or after too many `stopped_seeds`, the mutant is no longer played.
    """

    id: str
    sight: Sight
    reached: int = 0
    first_reached: int | None = None
    differs: int = 0
    first_differs: int | None = None
    unknown: int = 0
    at_import: bool = False
    stopped_seeds: tuple[int, ...] = ()
    found_seed: int | None = None
    found_by: tuple[str, ...] = ()
    what: str = ""
    cpu_s: float | None = None
    spent_s: float = 0.0

    @property
    def is_settled(self) -> bool:
        """Return True if the mutant is no longer played."""
        return self.found_seed is not None or len(self.stopped_seeds) >= STOPS_MAX


class RecordHead(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a record's file.

    - `cpu_s`: the CPU time of all runs.
    - `sound_not_pass`: seeds whose run without a mutant did not pass.
    - `origin`: the digests of code, sample and space. A sitting with other digests cannot continue
      the record.
    """

    name: str
    sample: int
    commit: str
    code: str
    machine: str
    seeds: int
    cpu_s: float
    sound_not_pass: tuple[int, ...] = ()
    origin: dict[str, str] = {}


class SightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one version of the code for one sample."""

    head: RecordHead
    fates: tuple[Fate, ...]


def write_record(record: SightRecord, folder: Path = RECORDS) -> Path:
    """Write a record, a line for each mutant; return its file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{record.head.name}-sample-{record.head.sample}.jsonl"
    lines = [msgspec.json.encode(entry) for entry in (record.head, *record.fates)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def read_record(name: str, sample: int, folder: Path = RECORDS) -> SightRecord | None:
    """Return one record, None if there is none."""
    path = folder / f"{name}-sample-{sample}.jsonl"
    return _read(path) if path.exists() else None


def read_records(folder: Path = RECORDS) -> tuple[SightRecord, ...]:
    """Return every record: by sample, then FIRST before the other names."""

    def order(record: SightRecord) -> tuple[int, bool, str]:
        head = record.head
        return (head.sample, head.name != FIRST, head.name)

    return tuple(sorted(map(_read, folder.glob("*.jsonl")), key=order))


def _read(path: Path) -> SightRecord:
    """Return the record in a file: a line with the head, and a line for each mutant."""
    first, *rest = path.read_bytes().splitlines()
    return SightRecord(
        head=msgspec.json.decode(first, type=RecordHead),
        fates=tuple(msgspec.json.decode(line, type=Fate) for line in rest),
    )
