"""One table and one picture in which the reader compares all faults of a run.

A measure is one quantity, such as the time in which a member notices the fault. After one fault it
has a value for each member, partition or group. The table and the picture show only the greatest of
these values. A strip is one row of the picture. It is about one measure, and has a dot for each
fault.

`bound_us` is the largest difference between the clocks of the run's machines. A length below it is
not known exactly.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pipeline.report.charts.chart import SERIES, Chart, Part, TextTable
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.columns import Column, number, text_table
from pipeline.summary.figures import FaultSummary
from pipeline.summary.story import moment_text

MEASURES = ("detect", "notice", "no coordinator", "commit gap")
"""The measures by which the faults are compared. A failover moves a coordinator to another broker.
Its first phase on the brokers is `detect`, and on the members `notice`. The two other measures are
times without service.
"""
_MIN_FOR_CHART = 4
"""Minimum number of faults for a picture. Fewer faults are compared only in the table."""
MAX_FAULTS = 500
"""Maximum number of faults in the table. If there are more, it has the first ones; the tables in
the run's directory have all of them.
"""


def overview(faults: Sequence[FaultSummary]) -> Iterator[Part]:
    """Yield a picture if there are at least _MIN_FOR_CHART faults, then a table of all faults."""
    table = _table(faults)
    # A measure without any value has no strip.
    strips = [strip for name in MEASURES if (strip := _strip(name, faults)).values]
    if len(faults) < _MIN_FOR_CHART or not strips:
        yield table
        return
    axis = axis_over(strips)
    yield Chart(
        id="phases-overview",
        title="All faults",
        about="The longest of each fault: a dot is a fault.",
        spec=strip_chart("faults", len(strips), axis, SERIES[3]),
        data={"faults": strip_rows(strips, axis)},
        table=table,
    )


def _table(faults: Sequence[FaultSummary]) -> TextTable:
    """Return the table of all faults. It is folded if there is a picture of them."""
    longest = [number(partial(_longest, name), name) for name in MEASURES]
    columns = (
        Column(lambda fault: fault.fault, "fault"),
        number(lambda fault: moment_text(fault.injected_us), "at"),
        Column(lambda fault: fault.node, "hit"),
        *longest,
        number(lambda fault: fault.rebalance_count, "rebalances"),
        Column(_kept, "members kept"),
    )
    more = len(faults) - MAX_FAULTS
    return text_table(
        columns,
        faults[:MAX_FAULTS],
        caption="The longest of each. Kept: members whose id and generation are the same after it."
        + (f" {more:,} more faults stand in the tables." if more > 0 else ""),
        folded="All faults in figures" if len(faults) >= _MIN_FOR_CHART else None,
    )


def _kept(fault: FaultSummary) -> str | None:
    """Return how many members kept their id and generation; None if the fault affected no group."""
    return f"{fault.members_kept} of {fault.members}" if fault.members else None


def _longest(name: str, fault: FaultSummary) -> str | None:
    """Return the greatest value of a measure after a fault as text; None if it has no subjects."""
    figures = fault.distribution(name)
    return None if figures is None else figures.longest_text


def _strip(name: str, faults: Sequence[FaultSummary]) -> Strip:
    """Return the strip of one measure: a dot for each fault, at the greatest value after it.

    A fault without a value has no dot; the strip's note counts such faults.
    """
    measured = [(fault.fault, fault.distribution(name)) for fault in faults]
    values = [
        (fault, figures.maximum)
        for fault, figures in measured
        if figures is not None and figures.maximum is not None
    ]
    bound_us = max((figures.bound_us for _, figures in measured if figures is not None), default=0)
    lengths = sorted(length for _, length in values)
    without = len(faults) - len(values)
    return Strip(
        name=name,
        values=tuple(values),
        figures=distribution_of(lengths, missing=without, bound_us=bound_us),
        subject="fault",
        note=f"{without:,} without" if without else "",
    )
