"""Caveats of a PASS: what users of a group noticed although the run kept all its promises.

A run passes if its checks find that the cluster kept all of Kafka's promises, such as that no
acknowledged commit is lost. But Kafka does not promise that a partition always has one owner, or
that a record is processed only once. So a run can pass although its users had trouble. Then its
verdict is shown with caveats: "PASS, and a partition of readers had no owner for 4.21 s: no promise
forbids it here".

`caveats_of` reads nothing but the summary of a run, so the terminal, the report, `coordlab list`
and JSON all show the same caveats. Most of them come from the summary's felt figures, which tell
for each group what its users noticed.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.summary.felt import FeltGroup
from pipeline.summary.figures import MARK, RunSummary, duration_text
from pipeline.summary.story import counted

FELT_US = 1_000_000
"""Shortest time with two owners, or without an owner, that is a caveat: 1 s. Users do not notice
shorter times.
"""
_UNOWNED = "without an owner"
_REPEATED = "records processed again"
"""Names of two measures in `felt.FELT_MEASURES`, which are the keys of `FeltGroup.spreads`."""


def caveats_of(summary: RunSummary | None) -> tuple[str, ...]:
    """Return the caveats of a run, each as a clause of a sentence.

    There are up to three:

    - "two members owned 6 partitions of readers at once, the longest for 8.02 s";
    - "a partition of readers had no owner for 4.21 s";
    - "readers processed 1,204 records again (and 2 more groups)".

    Each caveat names only the group in which the effect was greatest. The first two caveats need a
    time of FELT_US or more.
    """
    if summary is None:
        return ()
    caveats = (_two_owners(summary), _no_owner(summary), _repeated(summary))
    return tuple(caveat for caveat in caveats if caveat is not None)


def pass_text(pass_word: str, caveats: Sequence[str]) -> str:
    """Return one sentence with the caveats of a run that passed.

    The sentence begins with `pass_word`, which is PASS in the form that the caller wants to show.
    """
    if not caveats:
        return pass_word
    return f"{pass_word}, and {'; '.join(caveats)}: no promise forbids it here"


def _two_owners(summary: RunSummary) -> str | None:
    """Return the caveat about two owners; None if no partition had two owners for long enough."""
    # If the clocks of two machines differ, the times of two owners can seem to overlap although
    # they did not. So a time that is shorter than this difference does not count.
    least_us = max(FELT_US, summary.clock_error_us)
    overlaps = [owners for owners in summary.owners if owners.longest_us >= least_us]
    if not overlaps:
        return None
    worst = max(overlaps, key=lambda owners: owners.longest_us)
    other_groups = len({owners.group for owners in overlaps}) - 1
    # Partitions of the group may have had two owners several times. The text names the largest
    # number of partitions, and not the sum, because each time may have hit the same partitions.
    partitions = max(owners.partitions for owners in overlaps if owners.group == worst.group)

    mark = MARK if worst.disturbed else ""
    length = f"for {duration_text(worst.longest_us)}{mark}"
    if partitions == 1:
        owned = f"two members owned a partition of {worst.group} at once {length}"
    else:
        owned = (
            f"two members owned {counted(partitions, 'partition')} of {worst.group} at once, "
            f"the longest {length}"
        )
    return f"{owned}{_other_groups_text(other_groups)}"


def _no_owner(summary: RunSummary) -> str | None:
    """Return the caveat about the longest time without an owner; None if all times were short."""

    def longest_us(group: FeltGroup) -> int:
        """Return the longest time of a partition of the group without an owner."""
        spread = group.spreads.get(_UNOWNED)
        # A group without partitions has no spread. A group whose partitions never had an owner has
        # no maximum.
        if spread is None or spread.maximum is None:
            return 0
        return spread.maximum

    worst = _worst_group(summary, longest_us, least=FELT_US)
    if worst is None:
        return None
    return (
        f"a partition of {worst.name} had no owner for {duration_text(worst.value)}"
        f"{_felt_mark(summary)}{_other_groups_text(worst.other_groups)}"
    )


def _repeated(summary: RunSummary) -> str | None:
    """Return the caveat about the group that processed most records again.

    Returns None if no group processed a record again.
    """

    def repeated_records(group: FeltGroup) -> int:
        """Return how many records the group processed again."""
        spread = group.spreads.get(_REPEATED)
        if spread is None or spread.total is None:
            return 0
        return spread.total

    worst = _worst_group(summary, repeated_records, least=1)
    if worst is None:
        return None
    again = f"{worst.name} processed {counted(worst.value, 'record')} again"
    return f"{again}{_felt_mark(summary)}{_other_groups_text(worst.other_groups)}"


def _felt_mark(summary: RunSummary) -> str:
    """Return MARK if a machine was away by accident in the time of the felt figures, else ""."""
    return MARK if summary.felt is not None and summary.felt.disturbed else ""


class _WorstGroup(NamedTuple):
    """The group with the greatest value of a felt measure."""

    name: str
    value: int
    other_groups: int
    """number of other groups whose value is large enough for a caveat, too"""


def _worst_group(
    summary: RunSummary, value_of: Callable[[FeltGroup], int], *, least: int
) -> _WorstGroup | None:
    """Return the group with the greatest value; None if no group has at least the value `least`."""
    if summary.felt is None:
        return None
    values = {name: value_of(group) for name, group in summary.felt.groups.items()}
    large_values = {name: value for name, value in values.items() if value >= least}
    if not large_values:
        return None
    worst = max(large_values, key=lambda name: large_values[name])
    return _WorstGroup(worst, large_values[worst], other_groups=len(large_values) - 1)


def _other_groups_text(other_groups: int) -> str:
    """Return " (and 2 more groups)" for groups that a caveat does not name; "" for 0 groups."""
    return f" (and {counted(other_groups, 'more group')})" if other_groups else ""
