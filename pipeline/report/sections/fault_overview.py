"""The chart and the table "All faults", which compare the faults of a run.

The chart and the table show four measures of each fault. One of them is the commit gap: the time in
which a member had no commit acknowledged. A group with 12 members has 12 commit gaps after a fault.
The chart and the table show the longest of them.

The chart has a row (a strip) for each of the four measures, and in the row a dot for each fault.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pipeline.report.charts.chart import SERIES, Chart, Part, TextTable
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.columns import Column, number, text_table
from pipeline.summary.figures import FaultSummary
from pipeline.summary.story import moment_text

MEASURES = ("detect", "notice", "no coordinator", "commit gap")
"""The measures that are compared:

- `detect`: the time until the controller detected the fault;
- `notice`: the time until a member noticed the fault;
- `no coordinator`: the time in which a group had no coordinator;
- `commit gap`: the time in which a member had no commit acknowledged.
"""
_MIN_FOR_CHART = 4
"""Minimum number of faults for a chart. A few faults are compared as easily in the table."""
MAX_FAULTS = 500
"""Maximum number of faults in the table. If there are more, the table has only the first faults.
All faults are in the table `faults` in the run's directory.
"""


def overview(faults: Sequence[FaultSummary]) -> Iterator[Part]:
    """Yield the chart, which includes the table; with only a few faults, yield the table alone."""
    table = _table(faults)
    all_strips = [_strip(measure, faults) for measure in MEASURES]
    strips = [strip for strip in all_strips if strip.values]  # a strip without values has no dot
    if len(faults) < _MIN_FOR_CHART or not strips:
        yield table
        return
    axis = axis_over(strips)
    yield Chart(
        id="phases-overview",
        title="All faults",
        about="The longest of each fault: a dot is a fault.",
        # In the charts of single faults, the first three colours stand for the broker chain, the
        # client chain and the gaps. So this chart has the fourth colour.
        spec=strip_chart("faults", len(strips), axis, SERIES[3]),
        data={"faults": strip_rows(strips, axis)},
        table=table,
    )


def _table(faults: Sequence[FaultSummary]) -> TextTable:
    """Return the table of all faults, which is folded if there is a chart."""
    columns = (
        Column(lambda fault: fault.fault, "fault"),
        number(lambda fault: moment_text(fault.injected_us), "at"),
        Column(lambda fault: fault.node, "hit"),
        *(number(partial(_longest, measure), measure) for measure in MEASURES),
        number(lambda fault: fault.rebalance_count, "rebalances"),
        Column(_members_kept, "members kept"),
    )
    caption = "The longest of each. Kept: members whose id and generation are the same after it."
    left_out = len(faults) - MAX_FAULTS
    if left_out > 0:
        caption += f" {left_out:,} more faults stand in the tables."
    return text_table(
        columns,
        faults[:MAX_FAULTS],
        caption=caption,
        folded="All faults in figures" if len(faults) >= _MIN_FOR_CHART else None,
    )


def _members_kept(fault: FaultSummary) -> str | None:
    """Return how many affected members kept their id and generation: `3 of 4`.

    Returns None, for an empty cell, if the fault affected no member.
    """
    return f"{fault.members_kept} of {fault.members}" if fault.members else None


def _longest(measure: str, fault: FaultSummary) -> str | None:
    """Return the longest time of a measure after a fault as text; None if nothing was measured."""
    distribution = fault.distribution(measure)
    return None if distribution is None else distribution.longest_text


def _strip(measure: str, faults: Sequence[FaultSummary]) -> Strip:
    """Return the row of the chart for one measure, with a dot for each fault's longest time.

    A fault after which the measure has no value gets no dot. The note beside the row says how many
    such faults there are: `2 without`.
    """
    longest_of_faults: list[tuple[str, int]] = []
    clock_error_us = 0
    for fault in faults:
        distribution = fault.distribution(measure)
        if distribution is None:
            continue
        clock_error_us = max(clock_error_us, distribution.bound_us)
        if distribution.maximum is not None:
            longest_of_faults.append((fault.fault, distribution.maximum))
    lengths_us = sorted(length_us for _, length_us in longest_of_faults)
    without = len(faults) - len(longest_of_faults)
    return Strip(
        name=measure,
        values=tuple(longest_of_faults),
        figures=distribution_of(lengths_us, missing=without, bound_us=clock_error_us),
        subject="fault",
        note=f"{without:,} without" if without else "",
    )
