"""A lane of intervals: bars on rows, or of too many to read how many hold at once.

Every lane but the message diagrams is an `IntervalLane`: a table of columns says what of a row
stands in the chart's data, in its tooltip and in the text beneath. The lane's module adds what its
bars look like.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.report.charts.chart import INK, Chart, Pick, TextTable, axis_seconds
from pipeline.report.columns import Column, data_of, text_table
from pipeline.report.lanes.labels import FROM_TO, Tip, tooltip_of
from pipeline.report.lanes.marks import (
    Datum,
    Looks,
    Marks,
    kind_fill,
    picked,
    rows_of,
    span,
    time_lane,
    time_of,
)
from pipeline.report.lanes.spans import Steps, concurrent, join_steps, thinned
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.outcomes import in_number_order

MAX_TABLE_ROWS = 200
AREA_PX = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalLane:
    """What is told of the rows of one table, wherever their lane is drawn.

    Shape: `source` is the table's name, `folded` the line under which its rows stand as text;
    `about` and `more` are those of the chart unless it says otherwise.
    """

    id: str
    title: str
    about: str
    more: str
    source: str
    folded: str
    columns: tuple[Column, ...]

    def marks(
        self, name: str, y: alt.Y, where: str | None = None, tail: Sequence[Tip] = FROM_TO
    ) -> Marks:
        """Return what draws the data `name`; its tooltip has the lane's columns, then `tail`."""
        tips = [Tip(column.key, column.tip) for column in self.columns if column.tip]
        return Marks(name, y, (*tips, *tail), where)

    def datum(self, row: Any, start_us: int, end_us: int, **said: Any) -> Datum:  # noqa: ANN401 - a cell
        """Return the data of one bar: its ends, the lane's columns, and what else is said."""
        return span(start_us, end_us, **data_of(self.columns, row), **said)

    def text(self, rows: Sequence[Any]) -> TextTable:
        """Return rows as the table of text beneath the lane."""
        return text_table(
            self.columns, rows, limit=MAX_TABLE_ROWS, source=self.source, folded=self.folded
        )

    def draw(
        self,
        run: ReportInput,
        layers: Sequence[alt.Chart],
        data: Mapping[str, Sequence[Datum]],
        height: int | alt.Step,
        **changes: Any,  # noqa: ANN401 - arguments of time_lane
    ) -> Chart:
        """Return the lane; `changes` are said of this chart only."""
        said = {"lane_id": self.id, "title": self.title, "about": self.about, "more": self.more}
        return time_lane(run, layers=layers, data=data, height=height, **said | changes)

    def draw_counts(
        self,
        run: ReportInput,
        areas: list[Datum],
        fills: Mapping[str, str],
        *,
        what: str,
        unit: str | None = None,
        height: int = AREA_PX,
        **changes: Any,  # noqa: ANN401 - arguments of time_lane
    ) -> Chart:
        """Return the lane as stacked areas: one for each of `fills`, the first below.

        `what` a kind is stands in the tooltip, `unit` of a count before the legend, which is left
        out without it. With a pick only the kind that is picked is shown.
        """
        where = picked(changes["picks"][0].param, "k") if "picks" in changes else None
        layers = [_step_areas(what, fills, unit, where)]
        return self.draw(run, layers, {"counts": areas}, height, **changes)


def _step_areas(
    what: str, fills: Mapping[str, str], unit: str | None, where: str | None
) -> alt.Chart:
    fill = kind_fill("k", fills, title=unit)
    axis = alt.Axis(title=None, grid=True, tickMinStep=1, format=",d", tickCount=4)
    look: Looks = {"interpolate": "step-after", "clip": True, "stroke": INK, "strokeWidth": 0.7}
    areas = rows_of("counts", where).mark_area(**look, tooltip=tooltip_of([Tip("k", what)]))
    drawn: alt.Chart = areas.encode(
        x=time_of("a:Q"),
        y=alt.Y("n:Q", stack="zero", axis=axis),
        order=alt.Order("o:Q"),
        fill=fill if unit else fill.legend(None),
    )
    return drawn


def count_intervals(
    run: ReportInput, intervals: Mapping[str, Iterable[tuple[int, int]]]
) -> list[Datum]:
    """Return how many intervals of each kind hold at any time of the run, as rows of areas."""
    steps = [concurrent(each, from_us=0, to_us=run.end_us) for each in intervals.values()]
    return area_rows(join_steps(*steps), list(intervals))


def area_rows(steps: Steps, kinds: Sequence[str]) -> list[Datum]:
    """Return the data of areas: one row for each time and kind, in the order of `kinds`."""
    few = thinned(steps)
    return [
        {"a": axis_seconds(time_us), "k": kind, "o": order, "n": count}
        for time_us, counts in zip(few.times_us, few.counts, strict=True)
        for order, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    ]


def pick_of_groups(rows: Sequence[Row], limit: int, param: str, source: str) -> tuple[Pick, str]:
    """Return a pick of a group, those with most rows first, and what is said of the others.

    `limit`: so many rows may be in the page; groups beyond them are left to the table `source`.
    """
    numbers: dict[str, int] = {}
    for row in rows:
        numbers[row["group"]] = numbers.get(row["group"], 0) + 1
    options, room = [], limit
    for group in sorted(in_number_order(numbers), key=lambda each: -numbers[each]):
        room -= numbers[group]
        if room >= 0:
            options.append(group)
    pick = Pick(param=param, label="Group", options=tuple(options))
    return pick, pickable("groups", len(options), len(numbers), source)


def pickable(what: str, number: int, total: int, table: str) -> str:
    """Return what is said of things that are too many to be picked; nothing if all can be."""
    if number == total:
        return ""
    return f" {number:,} of {total:,} {what} can be picked; all of them are in tables/{table}."


def end_of(run: ReportInput, end_us: int | None) -> int:
    """Return when an interval ends: the run's end if nothing ended it."""
    return run.end_us if end_us is None else end_us


def group_and_broker(row: Row) -> str:
    """Return the name of the row of a group on one of its coordinators."""
    return f"{row['group']} \u00b7 {row['broker']}"
