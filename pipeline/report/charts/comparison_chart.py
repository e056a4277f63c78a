"""The picture of the main figures on the page that compares runs.

The page compares columns: a column is one run, or several runs with the same settings. For each
figure, such as `commit gap`, the picture has a horizontal line for each column:

    commit gap
    3 brokers   ----o-----------            o  the median over the members
    5 brokers   --o-----                    -  reaches to the member with the longest gap

Other figures have a value for each partition instead of each member. If a column has several runs,
the dot is the median of their medians, and a ring marks the median of each run.

The data comes from the rows of the comparison. One row has the medians of a figure (its statistic
is `p50`), another one the longest values (`max`). A row has a cell for each column, with the
`values` of the column's runs, their `median`, `low` and `high`, and the figure as `text`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.report.charts.chart import INK, LINE, MUTED, PAPER, SERIES
from pipeline.report.charts.log_axis import LogAxis
from pipeline.summary.comparison import Comparison, ComparisonRow
from pipeline.summary.comparison_cells import Cell
from pipeline.summary.figures import duration_text

FIGURES = ("detect", "notice", "rediscover", "accept", "commit gap", "processing gap")
"""The figures of the picture, in this order. A figure that no run has is left out."""
PICKED = "fault"
"""Name of the picture's parameter, and of a column of its data: the fault that the reader
picked."""
_WIDE = 720
"""A picture of at least this width in pixels has room for the ranges of figures over several runs.
A narrower one has the text of `_short_text`.
"""
# Sizes in pixels. A figure has a heading, then a part for each column, then a gap.
_HEADER_HEIGHT, _GAP = 26, 12
_LINE_HEIGHT = 40
"""Height of the part of one column: a text with its name and figures, and the line below."""
_TEXT_Y, _TEXT_HEIGHT = 9, 18
"""The middle of this text, from the top of the part, and the height of the text."""
_LINE_Y = 28
"""The position of the line, from the top of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The data of the picture.

    If there are several `faults`, the reader picks one of them, and the picture shows the figures
    after this fault. So `height`, in pixels, has room for the fault with the most figures.
    """

    rows: list[dict[str, Any]]
    faults: tuple[str, ...]
    height: int
    axis: LogAxis


def figure_lines(comparison: Comparison) -> Lines:
    """Return the data of the picture."""
    titles = [column.title for column in comparison.columns]
    rows: list[dict[str, Any]] = []
    faults, height = [], 0
    values: list[int] = []
    for fault in comparison.faults:
        fault_rows, fault_height, fault_values = _fault_lines(fault, comparison.rows, titles)
        if fault_rows:
            faults.append(fault)
            rows += fault_rows
            values += fault_values
            height = max(height, fault_height)
    return Lines(
        rows=rows, faults=tuple(faults), height=height, axis=LogAxis.of(values, bound_us=0)
    )


def _fault_lines(
    fault: str, rows: Sequence[ComparisonRow], titles: Sequence[str]
) -> tuple[list[dict[str, Any]], int, list[int]]:
    """Return the data of one fault, the height of its picture in pixels, and all drawn values.

    If no run has a figure, the comparison has no rows about it, and the figure is left out.
    """
    top = 0
    data: list[dict[str, Any]] = []
    values: list[int] = []
    for name in FIGURES:
        by_statistic = {
            row.statistic: row for row in rows if row.fault == fault and row.name == name
        }
        if "p50" not in by_statistic or "max" not in by_statistic:
            continue

        middle_y, bottom = top + _HEADER_HEIGHT / 2, top + _HEADER_HEIGHT
        heading = {"mark": "figure", "y": middle_y, "top": top, "bottom": bottom, "text": name}
        data.append({**heading, PICKED: fault})
        top = bottom

        pairs = zip(by_statistic["p50"].cells, by_statistic["max"].cells, strict=True)
        for title, (middle, longest) in zip(titles, pairs, strict=True):
            line = _line(title, name, middle, longest, top, values)
            data += [{**row, PICKED: fault} for row in line]
            top += _LINE_HEIGHT
        top += _GAP
    return data, top, values


def _line(
    title: str,
    name: str,
    middle: Cell | None,
    longest: Cell | None,
    top: int,
    all_values: list[int],
) -> list[dict[str, Any]]:
    """Return one column's marks for one figure: its name, the line, the rings and the dot.

    `middle` and `longest` are the figure's cells for p50 and max. The line reaches from the least
    p50 of a run to the greatest max of a run. The function appends the values that it draws to
    `all_values`, because the caller makes the axis long enough for all of them.
    """
    y = top + _LINE_Y
    name_row = {
        "mark": "name",
        "y": top + _TEXT_Y,
        "line_y": y,
        "top": top,
        "bottom": top + _TEXT_HEIGHT,
        "text": title,
    }
    # If no run of the column has the figure, there are no cells. The first condition would be
    # enough, but the type checker needs all of them.
    if middle is None or longest is None or middle.median is None or longest.high is None:
        return [{**name_row, "value": "missing", "short": "missing"}]
    low = middle.low if middle.low is not None else middle.median
    all_values += [low, middle.median, longest.high]
    # A single run has no ring, only the dot.
    ring_values = middle.values if middle.runs > 1 else ()
    says = f"{title}, {name}: p50 {middle.text}, longest {longest.text}"
    return [
        {**name_row, "value": _value_text(middle, longest), "short": _short_text(middle, longest)},
        {"mark": "line", "y": y, "from": low, "to": longest.high, "says": says},
        *({"mark": "run", "y": y, "from": value} for value in ring_values),
        {"mark": "dot", "y": y, "from": middle.median, "says": says},
    ]


def _value_text(middle: Cell, longest: Cell) -> str:
    """Return the figures of one column as text, such as `1.1 s, max 8.2 s`."""
    return middle.text if middle.text == longest.text else f"{middle.text}, max {longest.text}"


def _short_text(middle: Cell, longest: Cell) -> str:
    """Return the text of `_value_text` without ranges, for a phone."""
    shown = [
        duration_text(cell.median, bound_us=cell.bound_us)
        for cell in (middle, longest)
        if cell.median is not None
    ]
    # If both texts are equal, the dict has only one, and the result is without "max".
    return ", max ".join(dict.fromkeys(shown))


def comparison_chart(data: str, lines: Lines) -> alt.TopLevelMixin:
    """Return the picture of the data with the name `data`."""
    y_scale = alt.Scale(domain=[0, lines.height], reverse=True, nice=False, zero=False)
    y = alt.Y("y:Q", scale=y_scale, axis=None)
    x = lines.axis.x("from")
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData(data))
    picked = len(lines.faults) > 1
    # The column of the data (on the left) and the parameter (on the right) have the same name.
    if picked:
        base = base.transform_filter(f"datum[{PICKED!r}] == {PICKED}")

    def only(mark: str) -> alt.Chart:
        return base.transform_filter(alt.FieldEqualPredicate(field="mark", equal=mark))

    line_y = alt.Y("line_y:Q", scale=y_scale, axis=None)
    chart = alt.layer(
        only("figure")
        .mark_rect(fill=PAPER)
        .encode(
            x=alt.value(0),
            x2=alt.value("width"),
            y=alt.Y("top:Q", scale=y_scale, axis=None),
            y2="bottom:Q",
        ),
        only("name")
        .mark_rect(fill=PAPER)
        .encode(
            x=alt.value(0),
            x2=alt.value("width"),
            y=alt.Y("top:Q", scale=y_scale, axis=None),
            y2="bottom:Q",
        ),
        only("name")
        .mark_rule(stroke=LINE, strokeDash=[1, 3])
        .encode(x=alt.value(0), x2=alt.value("width"), y=line_y),
        only("line")
        .mark_rule(stroke=SERIES[0], strokeWidth=5, strokeCap="round", opacity=0.55)
        .encode(x=x, x2="to:Q", y=y, tooltip=says),
        only("run")
        .mark_circle(fill=PAPER, size=28, opacity=1, stroke=SERIES[0], strokeWidth=1)
        .encode(x=x, y=y),
        only("dot")
        .mark_circle(fill=SERIES[0], size=90, opacity=1, stroke=PAPER, strokeWidth=1)
        .encode(x=x, y=y, tooltip=says),
        only("figure")
        .mark_text(align="left", baseline="middle", fontWeight="bold", fill=INK)
        .encode(x=alt.value(0), y=y, text="text:N"),
        # With `dir="rtl"`, a name that is too long loses its beginning and keeps its end.
        only("name")
        .mark_text(
            align="left", baseline="middle", fill=MUTED, limit=alt.ExprRef("width * 0.5"), dir="rtl"
        )
        .encode(x=alt.value(0), y=y, text="text:N"),
        only("name")
        .mark_text(
            align="right",
            baseline="middle",
            fill=INK,
            text=alt.ExprRef(f"width < {_WIDE} ? datum.short : datum.value"),
        )
        .encode(x=alt.value("width"), y=y),
    ).properties(width="container", height=lines.height)
    return chart.add_params(alt.param(name=PICKED, value="")) if picked else chart
