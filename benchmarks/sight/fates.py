"""Makes the record of a journal.

A journal has an entry (an order) for each seed: how the run without a mutant ended, which mutants
it reached, and how the runs with these mutants ended. A run reaches a mutant if it evaluates the
place that the mutant changes. A record has an entry (a fate) for each mutant, with the results of
all seeds. If the journal continues an earlier record, the results of its seeds count, too.

The number of a mutant is its index in the sample.
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
    """Return the record of a journal, finished or not."""
    continued = head.base
    # The CPU time of all runs: for each seed, the sound run and the runs with mutants.
    spent_s = sum(order.sound.cpu_s + sum(play.cpu_s for play in order.mutants) for order in orders)
    not_pass = [order.seed for order in orders if order.sound.result != "pass"]
    if continued is None:
        fates: Sequence[Fate] = [_before_any_seed(mutant, head) for mutant in mutants]
    else:
        spent_s += continued.head.cpu_s
        not_pass = [*continued.head.sound_not_pass, *not_pass]
        fates = continued.fates
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
        fates=tuple(_after_seeds(number, fate, orders) for number, fate in enumerate(fates)),
    )


def _before_any_seed(mutant: SampledMutant, head: JournalHead) -> Fate:
    """Return a mutant's results before the first seed."""
    if mutant.id in head.gone:
        return Fate(id=mutant.id, sight=Sight.GONE)
    if mutant.id in head.not_switchable:
        reason = head.not_switchable[mutant.id]
        return Fate(id=mutant.id, sight=Sight.NOT_SWITCHABLE, what=reason)
    return Fate(id=mutant.id, sight=Sight.UNREACHED)


def _after_seeds(number: int, fate: Fate, orders: Sequence[PlayedOrder]) -> Fate:
    """Return the results of mutant `number` after the seeds of `orders`."""
    for order in orders:
        # A mutant that is gone or not switchable is never played, and a settled one is no longer
        # played.
        if fate.sight in (Sight.GONE, Sight.NOT_SWITCHABLE) or fate.is_settled:
            break
        fate = _after_one_seed(number, fate, order)
    return replace(fate, sight=_last_stage(fate), spent_s=round(fate.spent_s, 2))


def _after_one_seed(number: int, fate: Fate, order: PlayedOrder) -> Fate:
    """Return the results of mutant `number` after one more seed."""
    seed = order.seed
    # Some places are evaluated already when the code is imported.
    at_import = number in order.sound.at_import
    if at_import or number in order.sound.reached:
        first = seed if fate.first_reached is None else fate.first_reached
        fate = replace(
            fate,
            reached=fate.reached + 1,
            first_reached=first,
            at_import=fate.at_import or at_import,
        )
    played = next((play for play in order.mutants if play.mutant == number), None)
    # A seed is not played with a mutant that its run does not reach. But a user of the mutated code
    # would have to play this seed, too. So the cost of the seed's run without a mutant counts.
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
    if played.result == "unknown":
        fate = replace(fate, unknown=fate.unknown + 1)
    return replace(fate, spent_s=spent_s)


def _last_stage(fate: Fate) -> Sight:
    """Return how far the search came with a mutant. GONE and NOT_SWITCHABLE never change."""
    if fate.sight in (Sight.GONE, Sight.NOT_SWITCHABLE):
        return fate.sight
    if fate.found_seed is not None:
        return Sight.FOUND
    if len(fate.stopped_seeds) >= STOPS_MAX:
        return Sight.STOPPED
    if fate.differs:
        return Sight.DIFFERS
    return Sight.SAME if fate.reached else Sight.UNREACHED
