"""The section "All faults" of a report: one table and one picture that compare a run's faults.

Both show four times for each fault, MEASURES. After one fault, such a time is measured for every
member, partition or group that the fault affected, for example 12 commit gaps of 12 members. Table
and picture show the longest of them.

The picture has a row for each measure, called a strip, and in it a dot for each fault.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pipeline.report.charts.chart import SERIES, Chart, Part, TextTable
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.columns import Column, number, text_table
from pipeline.summary.figures import FaultSummary
from pipeline.summary.story import moment_text

MEASURES = ("detect", "notice", "no coordinator", "commit gap")
"""The measures that are compared: how long the controller took to detect the fault, and a member to
notice it; and how long a group was without a coordinator, and a member without a commit.
"""
_MIN_FOR_CHART = 4
"""Minimum number of faults for a picture. A few faults are compared as easily in the table."""
MAX_FAULTS = 500
"""Maximum number of faults in the table, which has the first ones. The table `faults` in the run's
directory has all of them.
"""


def overview(faults: Sequence[FaultSummary]) -> Iterator[Part]:
    """Yield the table alone, or the picture, to which the table belongs."""
    table = _table(faults)
    strips = [_strip(measure, faults) for measure in MEASURES]
    strips = [strip for strip in strips if strip.values]  # no empty rows in the picture
    if len(faults) < _MIN_FOR_CHART or not strips:
        yield table
        return
    axis = axis_over(strips)
    yield Chart(
        id="phases-overview",
        title="All faults",
        about="The longest of each fault: a dot is a fault.",
        # The first three colours stand for the broker chain, the client chain and the gaps.
        spec=strip_chart("faults", len(strips), axis, SERIES[3]),
        data={"faults": strip_rows(strips, axis)},
        table=table,
    )


def _table(faults: Sequence[FaultSummary]) -> TextTable:
    """Return the table of all faults. The page folds it if there is a picture of them."""
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
    """Return text such as `3 of 4`: the affected members that kept their id and generation.

    None, an empty cell, if the fault affected no member.
    """
    return f"{fault.members_kept} of {fault.members}" if fault.members else None


def _longest(measure: str, fault: FaultSummary) -> str | None:
    """Return the longest time of a measure after a fault as text; None if nothing was measured."""
    distribution = fault.distribution(measure)
    return None if distribution is None else distribution.longest_text


def _strip(measure: str, faults: Sequence[FaultSummary]) -> Strip:
    """Return the row of the picture for one measure, with a dot for each fault's longest time.

    A fault after which the measure has no time gets no dot. The note beside the row says how many
    such faults there are: `2 without`.
    """
    longest_us = []
    clock_error_us = 0
    for fault in faults:
        distribution = fault.distribution(measure)
        if distribution is None:
            continue
        clock_error_us = max(clock_error_us, distribution.bound_us)
        if distribution.maximum is not None:
            longest_us.append((fault.fault, distribution.maximum))
    lengths_us = sorted(length_us for _, length_us in longest_us)
    without = len(faults) - len(longest_us)
    return Strip(
        name=measure,
        values=tuple(longest_us),
        figures=distribution_of(lengths_us, missing=without, bound_us=clock_error_us),
        subject="fault",
        note=f"{without:,} without" if without else "",
    )
