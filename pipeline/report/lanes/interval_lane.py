"""What the lanes of a report have in common: `IntervalLane`.

A lane is a chart along the time axis of the page. Almost every lane draws each row of one table as
a bar: the lane `groups`, for example, has a bar for each time in which a group was in one state. If
a run has too many bars to draw, the lane has an area for each kind of interval instead. The areas
show, for example, how many groups were in each state over time.

Each lane has its own module, which lists the columns of the lane. A column is a fact about an
interval. It can have up to three uses: a key in the data of the chart, a line in its tooltip, and a
column of the text table beneath the chart. The module also builds the marks: bars, labels and
points.

The data of areas has these keys, which are short because a page has thousands of such objects:

- `a`: time in seconds
- `k`: kind of the interval, such as a state
- `n`: number of the kind's intervals at this time
- `o`: order of the kind in the stack
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.report.charts.chart import INK, Chart, Pick, TextTable, axis_seconds
from pipeline.report.columns import Column, data_of, text_table
from pipeline.report.lanes.labels import FROM_TO, Tip, tooltip_of
from pipeline.report.lanes.marks import (
    Datum,
    MarkProperties,
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
"""Maximum number of rows in the text table beneath a lane."""
AREA_PX = 150
"""Height of a lane of areas in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalLane:
    """A lane of the intervals in one table."""

    id: str
    title: str
    about: str
    """A sentence that says what the chart shows."""
    more: str
    """How to read the chart."""
    source: str
    """The name of the Parquet table with the intervals."""
    folded: str
    """The line on which the reader clicks to see the text table."""
    columns: tuple[Column, ...]
    """The facts about an interval, for the data, the tooltip and the text table."""

    def marks(
        self, name: str, y: alt.Y, where: str | None = None, tail: Sequence[Tip] = FROM_TO
    ) -> Marks:
        """Return Marks of a data set, from which the caller makes bars, labels and points.

        - `name`: the data set, such as "states".
        - `where`: a Vega expression. Only the objects for which it is true are drawn.
        - `tail`: the last lines of the tooltip. They follow the lines of the lane's columns.
        """
        tips = [Tip(column.key, column.tip) for column in self.columns if column.tip]
        return Marks(name, y, (*tips, *tail), where)

    def datum(self, row: Any, start_us: int, end_us: int, **more: Any) -> Datum:  # noqa: ANN401 - a cell
        """Return the data of one bar: its ends, the lane's columns, and `more` cells by key."""
        return span(start_us, end_us, **data_of(self.columns, row), **more)

    def text(self, rows: Sequence[Any]) -> TextTable:
        """Return rows as the text table beneath the lane."""
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
        """Return the lane as a chart; `changes` replace arguments of `time_lane`."""
        texts = {"lane_id": self.id, "title": self.title, "about": self.about, "more": self.more}
        return time_lane(run, layers=layers, data=data, height=height, **texts | changes)

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
        """Return the lane as stacked areas, one for each kind in `fills`, the first at the bottom.

        - `what`: the word for a kind in the tooltip, such as "state".
        - `unit`: the title of the legend, such as "groups". With None, there is no legend.
        - `changes`: as in `draw`. If they contain `picks`, the reader picks a kind from the first
          list, and only this kind is shown.
        """
        where = None
        if "picks" in changes:
            where = picked(changes["picks"][0].param, "k")  # `k` is the kind of an area
        layers = [_step_areas(what, fills, unit, where)]
        return self.draw(run, layers, {"counts": areas}, height, **changes)


def _step_areas(
    what: str, fills: Mapping[str, str], unit: str | None, where: str | None
) -> alt.Chart:
    """Return stacked areas of counts over time, which change in steps."""
    fill = kind_fill("k", fills, title=unit)
    # Counts are whole numbers, so the axis has no ticks between them.
    axis = alt.Axis(title=None, grid=True, tickMinStep=1, format=",d", tickCount=4)
    properties: MarkProperties = {
        "interpolate": "step-after",
        "clip": True,
        "stroke": INK,
        "strokeWidth": 0.7,
    }
    areas = rows_of("counts", where).mark_area(**properties, tooltip=tooltip_of([Tip("k", what)]))
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
    """Return how many intervals of each kind there are at each moment of the run.

    The result is the data of areas.
    """
    steps = [concurrent(of_kind, from_us=0, to_us=run.end_us) for of_kind in intervals.values()]
    return area_rows(join_steps(*steps), list(intervals))


def area_rows(steps: Steps, kinds: Sequence[str]) -> list[Datum]:
    """Return the data of areas, with an object for each time and kind.

    `steps` are counts over time, one count for each kind. For example, if at 2 s three groups are
    Stable and one is Empty, this time has two objects:
    `{"a": 2.0, "k": "Stable", "o": 0, "n": 3}` and `{"a": 2.0, "k": "Empty", "o": 1, "n": 1}`.
    If there are very many times, some are left out, but no peak is lost.
    """
    kept = thinned(steps)
    return [
        {"a": axis_seconds(time_us), "k": kind, "o": order, "n": count}
        for time_us, counts in zip(kept.times_us, kept.counts, strict=True)
        for order, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    ]


def pick_of_groups(rows: Sequence[Row], limit: int, param: str, source: str) -> tuple[Pick, str]:
    """Return a list from which the reader picks a group, and a note if the list lacks some groups.

    The groups with the most rows come first. The page has the rows of all groups in the list. To
    keep the page small, the list ends when its groups have `limit` rows. The note then says that
    all groups are in the table `source`.
    """
    row_counts = Counter(row["group"] for row in rows)
    # Take groups until the next group has too many rows. Groups with fewer rows are not taken after
    # it, even if they would fit. So the options are exactly the groups with the most rows.
    options, rows_taken = [], 0
    for group in sorted(in_number_order(row_counts), key=lambda group: -row_counts[group]):
        rows_taken += row_counts[group]
        if rows_taken > limit:
            break
        options.append(group)
    pick = Pick(param=param, label="Group", options=tuple(options))
    return pick, pickable_note("groups", len(options), len(row_counts), source)


def pickable_note(what: str, number: int, total: int, table: str) -> str:
    """Return a sentence on how many groups or partitions can be picked; "" if all can be picked.

    For example, ` 40 of 1,000 groups can be picked; all of them are in tables/NAME.`
    It begins with a space, because it is appended to a text.
    """
    if number == total:
        return ""
    return f" {number:,} of {total:,} {what} can be picked; all of them are in tables/{table}."


def end_of(run: ReportInput, end_us: int | None) -> int:
    """Return the end of an interval. If it is None, the interval lasted until the run ended."""
    return run.end_us if end_us is None else end_us


def group_and_broker(row: Row) -> str:
    """Return the name of the lane's row for a group on one coordinator: `readers · broker-1`."""
    return f"{row['group']} \u00b7 {row['broker']}"
