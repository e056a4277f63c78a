"""What a search saw of each mutant of a sample: the recorded form of a journal.

Data flow: Journal -> SightRecord -> records/<name>-sample-<n>.jsonl -> `sight_page`.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.sight.player import STOPS_MAX, MutantPlay, PlayedOrder
from benchmarks.sight.sampled import SampledMutant
from benchmarks.sight.sitting import JournalHead

RECORDS = Path(__file__).with_name("records")
FIRST = "before"
"""The record that others are compared with."""


class Sight(StrEnum):
    """How far a search saw a mutant; the last that applies."""

    GONE = "its place is gone"
    NOT_SWITCHABLE = "its place cannot be a switch"
    UNREACHED = "reached by no seed"
    SAME = "reached, every trace is the same"
    DIFFERS = "differs, and nobody minds"
    STOPPED = "its runs are over the bound"
    FOUND = "found"


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mutant.

    Shape: `reached`, `differs` and `unknown` count seeds, of those that were played with the mutant
    or would have been: after `found_seed`, or too many of `stopped_seeds`, nobody plays it. A place
    that is `at_import` is reached by every seed. `found_by` are the checkers of `found_seed`.
    Units: `cpu_s` is the CPU time of all seeds to the first finding, the mutant on.
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


class RecordHead(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a record's file.

    Units: `cpu_s` is the CPU time of all runs. Shape: `sound_not_pass` are seeds whose sound run
    was no PASS.
    """

    name: str
    sample: int
    commit: str
    code: str
    machine: str
    seeds: int
    cpu_s: float
    sound_not_pass: tuple[int, ...] = ()


class SightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of the code saw of one sample."""

    head: RecordHead
    fates: tuple[Fate, ...]


def record_of(
    name: str,
    sample: int,
    mutants: Sequence[SampledMutant],
    head: JournalHead,
    orders: Sequence[PlayedOrder],
) -> SightRecord:
    """Return what a journal says, finished or not."""
    spent_s = (order.sound.cpu_s + sum(each.cpu_s for each in order.mutants) for order in orders)
    return SightRecord(
        head=RecordHead(
            name=name,
            sample=sample,
            commit=head.commit,
            code=head.code,
            machine=head.machine,
            seeds=len(orders),
            cpu_s=round(sum(spent_s), 1),
            sound_not_pass=tuple(each.seed for each in orders if each.sound.result != "pass"),
        ),
        fates=tuple(_fate(number, mutant, head, orders) for number, mutant in enumerate(mutants)),
    )


def write_record(record: SightRecord, folder: Path = RECORDS) -> Path:
    """Write a record, a line for each mutant; return its file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{record.head.name}-sample-{record.head.sample}.jsonl"
    lines = [msgspec.json.encode(each) for each in (record.head, *record.fates)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def read_records(folder: Path = RECORDS) -> tuple[SightRecord, ...]:
    """Return every record: by sample, the first one of each before the others by their names."""
    records = []
    for path in folder.glob("*.jsonl"):
        first, *rest = path.read_bytes().splitlines()
        records.append(
            SightRecord(
                head=msgspec.json.decode(first, type=RecordHead),
                fates=tuple(msgspec.json.decode(line, type=Fate) for line in rest),
            )
        )
    return tuple(sorted(records, key=lambda r: (r.head.sample, r.head.name != FIRST, r.head.name)))


def _fate(
    number: int, mutant: SampledMutant, head: JournalHead, orders: Sequence[PlayedOrder]
) -> Fate:
    if mutant.id in head.gone:
        return Fate(id=mutant.id, sight=Sight.GONE)
    if mutant.id in head.not_switchable:
        what = head.not_switchable[mutant.id]
        return Fate(id=mutant.id, sight=Sight.NOT_SWITCHABLE, what=what)
    reached: list[int] = []
    differs: list[int] = []
    stopped: list[int] = []
    unknown = 0
    cpu_s = 0.0
    finding: MutantPlay | None = None
    finding_seed: int | None = None
    for order in orders:
        if number in order.sound.reached or number in order.sound.at_import:
            reached.append(order.seed)
        played = next((each for each in order.mutants if each.mutant == number), None)
        # A run that the mutant does not change costs a user what the sound run costs.
        cpu_s += order.sound.cpu_s if played is None else played.cpu_s
        if played is None:
            continue
        if played.differs:
            differs.append(order.seed)
        unknown += played.result == "unknown"
        if played.is_stopped:
            stopped.append(order.seed)
        if played.found_by:
            finding, finding_seed = played, order.seed
        if played.found_by or len(stopped) >= STOPS_MAX:
            break
    return Fate(
        id=mutant.id,
        sight=_sight(reached, differs, stopped, finding),
        reached=len(reached),
        first_reached=reached[0] if reached else None,
        differs=len(differs),
        first_differs=differs[0] if differs else None,
        unknown=unknown,
        at_import=any(number in order.sound.at_import for order in orders[:1]),
        stopped_seeds=tuple(stopped),
        found_seed=finding_seed,
        found_by=() if finding is None else finding.found_by,
        what="" if finding is None else finding.what,
        cpu_s=None if finding is None else round(cpu_s, 2),
    )


def _sight(
    reached: Sequence[int],
    differs: Sequence[int],
    stopped: Sequence[int],
    finding: MutantPlay | None,
) -> Sight:
    if finding is not None:
        return Sight.FOUND
    if len(stopped) >= STOPS_MAX:
        return Sight.STOPPED
    if differs:
        return Sight.DIFFERS
    return Sight.SAME if reached else Sight.UNREACHED
