"""Caveats of a PASS: times without service and repeated records that no promise forbids.

Terminal, report, `list` and JSON all use this computation. It reads the summary only.
"""

from collections.abc import Callable, Sequence

from pipeline.summary.felt import FeltGroup
from pipeline.summary.figures import MARK, RunSummary, duration_text
from pipeline.summary.story import counted

FELT_US = 1_000_000
"""Shortest time that counts as felt."""
_UNOWNED = "without an owner"
_REPEATED = "records processed again"


def caveats_of(summary: RunSummary | None) -> tuple[str, ...]:
    """Return the caveats of a run, a clause each.

    There are three kinds: partitions with two owners at once, and partitions without an owner, each
    for FELT_US at least; and records that were processed again. Each names the worst group only.
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
    owners = [
        each for each in summary.owners if each.longest_us >= max(FELT_US, summary.clock_error_us)
    ]
    if not owners:
        return []
    worst = max(owners, key=lambda each: each.longest_us)
    others = len({each.group for each in owners}) - 1
    partitions = max(each.partitions for each in owners if each.group == worst.group)
    one = f"for {duration_text(worst.longest_us)}{MARK if worst.disturbed else ''}"
    if partitions == 1:
        return [f"two members owned a partition of {worst.group} at once {one}{_elsewhere(others)}"]
    return [
        f"two members owned {counted(partitions, 'partition')} of {worst.group} at once, "
        f"the longest {one}{_elsewhere(others)}"
    ]


def _no_owner(summary: RunSummary) -> list[str]:
    def longest_us(group: FeltGroup) -> int:
        spread = group.spreads.get(_UNOWNED)
        return 0 if spread is None else spread.maximum or 0

    found = _worst(summary, longest_us, least=FELT_US)
    if found is None:
        return []
    group, value_us, others = found
    return [
        f"a partition of {group} had no owner for {duration_text(value_us)}{_felt_mark(summary)}"
        f"{_elsewhere(others)}"
    ]


def _repeated(summary: RunSummary) -> list[str]:
    def records(group: FeltGroup) -> int:
        spread = group.spreads.get(_REPEATED)
        return 0 if spread is None else spread.total or 0

    found = _worst(summary, records, least=1)
    if found is None:
        return []
    group, value, others = found
    again = f"{group} processed {counted(value, 'record')} again"
    return [f"{again}{_felt_mark(summary)}{_elsewhere(others)}"]


def _felt_mark(summary: RunSummary) -> str:
    return MARK if summary.felt is not None and summary.felt.disturbed else ""


def _worst(
    summary: RunSummary, value_of: Callable[[FeltGroup], int], *, least: int
) -> tuple[str, int, int] | None:
    """Return the group with the greatest value, the value, and the number of others with `least`.

    None if no group has a value of at least `least`.
    """
    groups = {} if summary.felt is None else summary.felt.groups
    values = {name: value for name, each in groups.items() if (value := value_of(each)) >= least}
    if not values:
        return None
    worst = max(values, key=lambda name: values[name])
    return worst, values[worst], len(values) - 1


def _elsewhere(others: int) -> str:
    return f" (and {counted(others, 'more group')})" if others else ""
