"""One colour for each broker, the same in every lane that shows coordinators.

In the ownership lane, a bar has the colour of the coordinator that assigned the partition. The bars
of a coordinator's successive generations are plain, hatched and pale. So the reader can distinguish
the generations. No broker is orange, green or red: orange means rebalances and faults, green means
the state Stable, and red means two owners or two coordinators at the same time.
"""

from collections.abc import Sequence

from pipeline.report.charts.chart import HATCHES, SERIES, soft
from pipeline.report.report_input import ReportInput
from pipeline.summary.outcomes import in_number_order

_COLOURS = (0, 6, 3, 7, 2)
"""Indexes of the colours in SERIES: blue, pink, purple, grey, teal. In this order, neighbours
differ in lightness.
"""
VARIANTS = 3
"""Number of variants of one colour: plain, hatched and pale."""
_TABLES = (
    ("coordinator_tenures", "broker"),
    ("group_states", "broker"),
    ("ownership", "coordinator"),
)
"""The tables that name coordinators. The second text is the column with the name."""


def coordinator_brokers(run: ReportInput) -> Sequence[str]:
    """Return every broker that was a coordinator, in the order of their numbers."""
    return in_number_order(
        {
            row[column]
            for table, column in _TABLES
            for row in run.tables.rows(table)
            if row[column] is not None
        }
    )


def broker_fills(run: ReportInput) -> dict[str, str]:
    """Return the fill of each broker that was a coordinator.

    The first five brokers have plain colours. From the sixth broker on, the same colours come again
    with patterns.
    """
    return {broker: broker_fill(index) for index, broker in enumerate(coordinator_brokers(run))}


def broker_fill(index: int, variant: int = 0) -> str:
    """Return a variant of the colour of broker number `index`, counted from 0.

    The variants of the first five brokers are plain, hatched and pale, in this order. The next five
    brokers have the same colours, but their variants begin with hatched.
    """
    colour = _COLOURS[index % len(_COLOURS)]
    variants = (SERIES[colour], HATCHES[colour], soft(SERIES[colour]))
    # The number of brokers before this broker that have the same colour.
    times_used_before = index // len(_COLOURS)
    return variants[(variant + times_used_before) % VARIANTS]
