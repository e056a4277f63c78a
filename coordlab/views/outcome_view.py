"""What a run did to its groups, in lines: rebalances, two coordinators, two owners, duplicates.

Every line says one thing and stands only where there is something to say. Lines are plain text, so
that they read the same without colour; the terminal breaks them. Their words are those of
`pipeline.summary.story`, which the report uses, too.
"""

from collections.abc import Iterator

from pipeline.summary.figures import FaultSummary, RunSummary
from pipeline.summary.story import (
    Told,
    coordinators_told,
    errors_text,
    kept_text,
    owners_told,
    rebalances_told,
    repeated_text,
)

MAX_BLOCKS = 6
"""How many pairs of coordinators, or of owners, are told; the tables have them all."""


def fault_rebalance_lines(fault: FaultSummary) -> Iterator[str]:
    """Tell the rebalances after a fault, and how many members came through it unchanged."""
    if not fault.rebalances:
        yield "no rebalance"
    for rebalances in fault.rebalances:
        yield from _lines(rebalances_told(rebalances, fault))
    kept = kept_text(fault)
    if kept is not None:
        yield kept


def outcome_lines(summary: RunSummary) -> Iterator[str]:
    """Tell what else the run did to its groups."""
    for coordinators in summary.coordinators[:MAX_BLOCKS]:
        yield from _lines(coordinators_told(coordinators))
    yield from _more(len(summary.coordinators), "coordinators", "tenure_overlaps")
    long_enough = [each for each in summary.owners if each.longest_us >= summary.clock_error_us]
    for owners in long_enough[:MAX_BLOCKS]:
        yield from _lines(owners_told(owners))
    yield from _more(len(long_enough), "owners", "ownership_overlaps")
    for processing in summary.processing:
        if processing.repeated:
            yield repeated_text(processing)
    if summary.commit_errors:
        yield errors_text(summary.commit_errors)


def _more(number: int, what: str, table: str) -> Iterator[str]:
    if number > MAX_BLOCKS:
        yield f"and {number - MAX_BLOCKS} more times with two {what} at once: table {table}"


def _lines(told: Told) -> Iterator[str]:
    yield told.headline
    yield from (f"  {line}" for line in told.particulars)
