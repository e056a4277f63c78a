"""The picture of the main figures of several runs. For each figure it has a line for each column.

A column is a column of the comparison: one run, or several runs with the same settings. A figure
has a value for each subject, which is a member or a partition. On the line of a column, a dot is
the median of these values, and the line reaches to the longest value. If a column has several runs,
the dot is the median of their medians, and a ring marks the median of each run.

A row of the comparison is one figure and one statistic (`p50`, the median over subjects, or `max`).
It has a cell for each column. A cell has the `median`, `low` and `high` of the figure over the runs
of its column, the `values` of these runs, and the figure as `text`.
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
"""A picture of at least this width in pixels has ranges beside the names of its lines."""
_HEADER_HEIGHT, _GAP = 26, 12
"""Height of the heading of a figure, and of the gap after its lines, in pixels."""
_LINE_HEIGHT, _TEXT_Y, _TEXT_HEIGHT, _LINE_Y = 40, 9, 18, 28
"""Sizes in pixels of the part of a figure that is about one column: its height, the middle and the
height of its text (name and figures), and the position of the line below the text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The data of the picture. If there are several `faults`, the reader picks one of them.

    `height` is in pixels. It is that of the fault with the most figures.
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
    """Return the data of one fault, its height in pixels, and all values in it.

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
    p50 of a run to the greatest max of a run. The function adds the line's ends and dot to
    `all_values`, from which the axis is computed.
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
    values = [low, middle.median, longest.high]
    all_values += values
    says = f"{title}, {name}: p50 {middle.text}, longest {longest.text}"
    return [
        {**name_row, "value": _value_text(middle, longest), "short": _short_text(middle, longest)},
        {"mark": "line", "y": y, "from": values[0], "to": values[-1], "says": says},
        *({"mark": "run", "y": y, "from": value} for value in middle.values[: _runs_shown(middle)]),
        {"mark": "dot", "y": y, "from": middle.median, "says": says},
    ]


def _runs_shown(middle: Cell) -> int:
    """Return the number of rings: one for each run. A single run has no ring, only the dot."""
    return len(middle.values) if middle.runs > 1 else 0


def _value_text(middle: Cell, longest: Cell) -> str:
    return middle.text if middle.text == longest.text else f"{middle.text}, max {longest.text}"


def _short_text(middle: Cell, longest: Cell) -> str:
    """Return the text of `_value_text` without ranges, for a phone."""
    shown = [
        duration_text(cell.median, bound_us=cell.bound_us)
        for cell in (middle, longest)
        if cell.median is not None
    ]
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
