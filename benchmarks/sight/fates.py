"""Results of each mutant in a journal, added to those of the record that it continues.

Data flow: Journal -> SightRecord.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from benchmarks.sight.player import STOPS_MAX, PlayedOrder
from benchmarks.sight.records import Fate, RecordHead, Sight, SightRecord
from benchmarks.sight.sampled import SampledMutant
from benchmarks.sight.sitting import JournalHead


def record_of(
    name: str,
    sample: int,
    mutants: Sequence[SampledMutant],
    head: JournalHead,
    orders: Sequence[PlayedOrder],
) -> SightRecord:
    """Return the results of a journal, finished or not, with those of the continued record."""
    before = head.base
    spent_s = sum(order.sound.cpu_s + sum(each.cpu_s for each in order.mutants) for order in orders)
    not_pass = [each.seed for each in orders if each.sound.result != "pass"]
    if before is not None:
        spent_s += before.head.cpu_s
        not_pass = [*before.head.sound_not_pass, *not_pass]
    fates = [_first(mutant, head) for mutant in mutants] if before is None else before.fates
    return SightRecord(
        head=RecordHead(
            name=name,
            sample=sample,
            commit=head.commit,
            code=head.code,
            machine=head.machine,
            seeds=head.seeds_before + len(orders),
            cpu_s=round(spent_s, 1),
            sound_not_pass=tuple(not_pass),
            origin=head.decisive,
        ),
        fates=tuple(_after(number, fate, orders) for number, fate in enumerate(fates)),
    )


def _first(mutant: SampledMutant, head: JournalHead) -> Fate:
    """Return the results before any seed."""
    if mutant.id in head.gone:
        return Fate(id=mutant.id, sight=Sight.GONE)
    if mutant.id in head.not_switchable:
        what = head.not_switchable[mutant.id]
        return Fate(id=mutant.id, sight=Sight.NOT_SWITCHABLE, what=what)
    return Fate(id=mutant.id, sight=Sight.UNREACHED)


def _after(number: int, fate: Fate, orders: Sequence[PlayedOrder]) -> Fate:
    """Return the results of a mutant after these seeds."""
    for order in orders:
        if fate.sight in (Sight.GONE, Sight.NOT_SWITCHABLE) or fate.is_settled:
            break
        fate = _after_one(number, fate, order)
    return replace(fate, sight=_sight(fate), spent_s=round(fate.spent_s, 2))


def _after_one(number: int, fate: Fate, order: PlayedOrder) -> Fate:
    seed = order.seed
    at_import = number in order.sound.at_import
    if at_import or number in order.sound.reached:
        first = seed if fate.first_reached is None else fate.first_reached
        fate = replace(
            fate,
            reached=fate.reached + 1,
            first_reached=first,
            at_import=fate.at_import or at_import,
        )
    played = next((each for each in order.mutants if each.mutant == number), None)
    # A run that the mutant does not change costs a user as much as one without it.
    spent_s = fate.spent_s + (order.sound.cpu_s if played is None else played.cpu_s)
    if played is None:
        return replace(fate, spent_s=spent_s)
    if played.differs:
        first = seed if fate.first_differs is None else fate.first_differs
        fate = replace(fate, differs=fate.differs + 1, first_differs=first)
    if played.is_stopped:
        fate = replace(fate, stopped_seeds=(*fate.stopped_seeds, seed))
    if played.found_by:
        fate = replace(
            fate,
            found_seed=seed,
            found_by=played.found_by,
            what=played.what,
            cpu_s=round(spent_s, 2),
        )
    return replace(fate, unknown=fate.unknown + (played.result == "unknown"), spent_s=spent_s)


def _sight(fate: Fate) -> Sight:
    if fate.sight in (Sight.GONE, Sight.NOT_SWITCHABLE):
        return fate.sight
    if fate.found_seed is not None:
        return Sight.FOUND
    if len(fate.stopped_seeds) >= STOPS_MAX:
        return Sight.STOPPED
    if fate.differs:
        return Sight.DIFFERS
    return Sight.SAME if fate.reached else Sight.UNREACHED
