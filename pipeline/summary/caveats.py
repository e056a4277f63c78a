"""Caveats of a PASS: what users of a group noticed although the run kept all its promises.

A promise is a property of Kafka that the checks of a run verify. PASS is the verdict of a run that
kept all its promises. No promise forbids that a partition has two owners or none for a while, or
that records are processed again. `caveats_of` reads only the summary of a run, so terminal, report,
`list` and JSON show the same caveats.

A felt figure is about an effect that users of a group notice, such as the time in which a partition
has no owner. A spread is the distribution of a felt figure over the partitions of a group. A
machine is away by accident if it is lost or silent without a planned fault. MARK (" *") follows a
figure if a machine was away by accident in the figure's time.
"""

from collections.abc import Callable, Sequence

from pipeline.summary.felt import FeltGroup
from pipeline.summary.figures import MARK, RunSummary, duration_text
from pipeline.summary.story import counted

FELT_US = 1_000_000
"""Shortest time with two owners, or without an owner, that is a caveat. Users do not notice shorter
times.
"""
_UNOWNED = "without an owner"
_REPEATED = "records processed again"
"""Names of two felt figures, as in `felt.FELT_MEASURES`: keys of `FeltGroup.spreads`."""


def caveats_of(summary: RunSummary | None) -> tuple[str, ...]:
    """Return the caveats of a run; each is a clause.

    There is at most one caveat of each of these kinds. It names only the group in which the effect
    was greatest:

    - partitions had two owners at the same time, for at least FELT_US;
    - partitions had no owner, for at least FELT_US;
    - records were processed again.
    """
    if summary is None:
        return ()
    return (*_two_owners(summary), *_no_owner(summary), *_repeated(summary))


def pass_text(word: str, caveats: Sequence[str]) -> str:
    """Return `word` (the caller's word for PASS) and the caveats, as one sentence."""
    if not caveats:
        return word
    return f"{word}, and {'; '.join(caveats)}: no promise forbids it here"


def _two_owners(summary: RunSummary) -> list[str]:
    """Return the caveat about two owners, about the longest such time; empty if all were short."""
    # A time below the error between clocks does not count, because the clocks alone can cause it.
    least_us = max(FELT_US, summary.clock_error_us)
    overlaps = [owners for owners in summary.owners if owners.longest_us >= least_us]
    if not overlaps:
        return []
    worst = max(overlaps, key=lambda owners: owners.longest_us)
    other_groups = len({owners.group for owners in overlaps}) - 1
    # If the group has several overlaps, the number of partitions is that of the largest one. A sum
    # would be wrong, because two overlaps can be about the same partitions.
    partitions = max(owners.partitions for owners in overlaps if owners.group == worst.group)

    length = f"for {duration_text(worst.longest_us)}{MARK if worst.disturbed else ''}"
    if partitions == 1:
        owned = f"two members owned a partition of {worst.group} at once {length}"
    else:
        owned = (
            f"two members owned {counted(partitions, 'partition')} of {worst.group} at once, "
            f"the longest {length}"
        )
    return [f"{owned}{_elsewhere(other_groups)}"]


def _no_owner(summary: RunSummary) -> list[str]:
    """Return the caveat about the longest time without an owner; empty if all were short."""

    def longest_us(group: FeltGroup) -> int:
        # A group without partitions has no spread; a spread without any owner has no maximum.
        spread = group.spreads.get(_UNOWNED)
        return 0 if spread is None else spread.maximum or 0

    worst = _worst(summary, longest_us, least=FELT_US)
    if worst is None:
        return []
    group, unowned_us, other_groups = worst
    return [
        f"a partition of {group} had no owner for {duration_text(unowned_us)}"
        f"{_felt_mark(summary)}{_elsewhere(other_groups)}"
    ]


def _repeated(summary: RunSummary) -> list[str]:
    """Return the caveat about the group that processed most records again; empty if none did."""

    def records(group: FeltGroup) -> int:
        spread = group.spreads.get(_REPEATED)
        return 0 if spread is None else spread.total or 0

    worst = _worst(summary, records, least=1)
    if worst is None:
        return []
    group, repeated, other_groups = worst
    again = f"{group} processed {counted(repeated, 'record')} again"
    return [f"{again}{_felt_mark(summary)}{_elsewhere(other_groups)}"]


def _felt_mark(summary: RunSummary) -> str:
    """Return MARK if a machine was away by accident in the time of the felt figures, else ""."""
    return MARK if summary.felt is not None and summary.felt.disturbed else ""


def _worst(
    summary: RunSummary, value_of: Callable[[FeltGroup], int], *, least: int
) -> tuple[str, int, int] | None:
    """Return the group with the greatest value, this value, and the number of other groups.

    Only groups with a value of `least` or more count. Returns None if there is no such group.
    """
    groups = {} if summary.felt is None else summary.felt.groups
    values = {name: value for name, group in groups.items() if (value := value_of(group)) >= least}
    if not values:
        return None
    worst = max(values, key=lambda name: values[name])
    return worst, values[worst], len(values) - 1


def _elsewhere(other_groups: int) -> str:
    """Return the number of the groups that a caveat does not name; "" if it is 0."""
    return f" (and {counted(other_groups, 'more group')})" if other_groups else ""
