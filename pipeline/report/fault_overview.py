"""All faults of a run at a glance: the main figures of each, in time order."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from pipeline.figures import FaultSummary, duration_text
from pipeline.report.chart import SERIES, Chart, Part, TextTable
from pipeline.report.strips import TICK_LABEL, decade
from pipeline.story import moment_text

MEASURES = ("detect", "notice", "no coordinator", "commit gap")
"""What is compared over faults: the two chains' first phases, and what was felt."""
_MIN_FOR_CHART = 4
MAX_FAULTS = 500
"""So many faults are shown, the first ones: the tables have them all."""


def overview(faults: Sequence[FaultSummary]) -> Iterator[Part]:
    """Yield a table of all faults, above it a picture if they are more than a few."""
    table = _table(faults)
    data = _points(faults)
    if len(faults) < _MIN_FOR_CHART or not data:
        yield table
        return
    yield Chart(
        id="phases-overview",
        title="All faults",
        about="Dots are medians, lines reach to the longest. Logarithmic time.",
        spec=_chart(data),
        data={"faults": data},
        table=table,
    )


def _table(faults: Sequence[FaultSummary]) -> TextTable:
    found = [
        (
            fault.fault,
            moment_text(fault.injected_us),
            fault.node,
            *(_longest(fault, name) for name in MEASURES),
            fault.rebalance_count,
            f"{fault.members_kept} of {fault.members}" if fault.members else None,
        )
        for fault in faults[:MAX_FAULTS]
    ]
    more = len(faults) - len(found)
    return TextTable(
        headings=("fault", "at", "hit", *MEASURES, "rebalances", "members kept"),
        rows=tuple(found),
        caption="The longest of each. Kept: members whose id and generation are the same after it."
        + (f" {more:,} more faults stand in the tables." if more else ""),
        numeric=("at", *MEASURES, "rebalances"),
        folded="All faults in figures" if len(faults) >= _MIN_FOR_CHART else None,
    )


def _longest(fault: FaultSummary, name: str) -> str | None:
    found = fault.distribution(name)
    return None if found is None else found.longest_text


def _points(faults: Sequence[FaultSummary]) -> list[dict[str, Any]]:
    points = []
    for place, fault in enumerate(faults[:MAX_FAULTS], start=1):
        for name in MEASURES:
            found = fault.distribution(name)
            median = None if found is None else found.percentile(50)
            if found is None or median is None or found.maximum is None:
                continue
            text = duration_text(median, bound_us=found.bound_us)
            points.append(
                {
                    "nth": place,
                    "measure": name,
                    "p50": max(median, found.bound_us, 1),
                    "max": max(found.maximum, found.bound_us, 1),
                    "says": f"{fault.fault}, {name}: p50 {text}, longest {found.longest_text}",
                }
            )
    return points


def _chart(data: Sequence[dict[str, Any]]) -> alt.TopLevelMixin:
    smallest, largest = min(row["p50"] for row in data), max(row["max"] for row in data)
    first, last = decade(smallest), decade(largest) * 10
    ticks = [first]
    while ticks[-1] < last:
        ticks.append(ticks[-1] * 10)
    x = alt.X(
        "nth:Q",
        title="faults in time order",
        scale=alt.Scale(nice=False, zero=False, padding=12),
        axis=alt.Axis(tickMinStep=1, format="d", grid=False),
    )
    y = alt.Y(
        "p50:Q",
        title=None,
        scale=alt.Scale(type="log", domain=[first, last], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=TICK_LABEL, grid=True),
    )
    color = alt.Scale(domain=list(MEASURES), range=[SERIES[0], SERIES[1], SERIES[2], SERIES[3]])
    shape = alt.Scale(domain=list(MEASURES), range=["circle", "diamond", "square", "triangle-up"])
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData("faults"))
    return alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(
            x=x, y=y, y2="max:Q", stroke=alt.Stroke("measure:N", scale=color, legend=None)
        ),
        base.mark_point(size=60, opacity=1, strokeWidth=0).encode(
            x=x,
            y=y,
            fill=alt.Fill("measure:N", title=None, scale=color),
            shape=alt.Shape("measure:N", title=None, scale=shape),
            tooltip=says,
        ),
    ).properties(width="container", height=260)
