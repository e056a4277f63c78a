"""Counts over time as stacked areas: what a lane shows of things that are too many for rows."""

from collections.abc import Mapping, Sequence

import altair as alt

from pipeline.report.charts.chart import INK, axis_seconds
from pipeline.report.lanes.labels import Tip, tooltip_of
from pipeline.report.lanes.marks import Datum, kind_fill, rows_of, time_of
from pipeline.report.lanes.spans import Steps


def step_areas(
    name: str, *, what: str, fills: Mapping[str, str], unit: str | None, where: str | None = None
) -> alt.Chart:
    """Return counts over time as stacked steps: one area for each of `fills`, the first below.

    Shape: `area_rows` makes the data `name`. `what` a kind is stands in the tooltip, `unit` of a
    count before the legend, which is left out without it.
    """
    fill = kind_fill("k", fills, title=unit)
    axis = alt.Axis(title=None, grid=True, tickMinStep=1, format=",d", tickCount=4)
    drawn: alt.Chart = (
        rows_of(name, where)
        .mark_area(
            interpolate="step-after",
            clip=True,
            stroke=INK,
            strokeWidth=0.7,
            tooltip=tooltip_of([Tip("k", what)]),
        )
        .encode(
            x=time_of("a:Q"),
            y=alt.Y("n:Q", stack="zero", axis=axis),
            order=alt.Order("o:Q"),
            fill=fill if unit else fill.legend(None),
        )
    )
    return drawn


def area_rows(steps: Steps, kinds: Sequence[str]) -> list[Datum]:
    """Return the data of `step_areas`: one row for each time and kind, in the order of `kinds`."""
    return [
        {"a": axis_seconds(time_us), "k": kind, "o": order, "n": count}
        for time_us, counts in zip(steps.times_us, steps.counts, strict=True)
        for order, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    ]
