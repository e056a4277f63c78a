"""One colour for each broker, the same in every lane that shows coordinators.

What a coordinator assigned has its colour, too: the look of it, plain, hatched or pale, tells the
generations of one coordinator apart. Orange is left to rebalances and faults, green to Stable, red
to what must not be.
"""

from collections.abc import Sequence

from pipeline.report.charts.chart import HATCHES, SERIES, soft
from pipeline.report.report_input import ReportInput
from pipeline.summary.outcomes import in_number_order

_COLOURS = (0, 6, 3, 7, 2)
"""Places in SERIES, neighbours of different lightness: blue, pink, purple, grey, teal."""
LOOKS = 3
"""Looks of one colour: as many generations of one coordinator are told apart."""
_TABLES = (
    ("coordinator_tenures", "broker"),
    ("group_states", "broker"),
    ("ownership", "coordinator"),
)


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
    """Return the fill of each broker that was a coordinator; with many they repeat hatched."""
    return {broker: broker_fill(at) for at, broker in enumerate(coordinator_brokers(run))}


def broker_fill(at: int, look: int = 0) -> str:
    """Return a look of the colour of the `at`-th broker: plain, hatched, pale, and again."""
    colour = _COLOURS[at % len(_COLOURS)]
    turn = (look + at // len(_COLOURS)) % LOOKS
    return (SERIES[colour], HATCHES[colour], soft(SERIES[colour]))[turn]
