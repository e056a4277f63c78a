"""The chart of the main figures on the page that compares runs.

The page compares columns: a column is one run, or several runs with the same settings. For each
figure, such as `commit gap`, the chart has a horizontal line for each column:

    commit gap
    3 brokers   ----o-----------            o  the median over the members
    5 brokers   --o-----                    -  reaches to the member with the longest gap

A figure such as `processing gap` has a value for each partition, instead of each member. If a
column has several runs, a ring marks the median of each run, and the dot is the median of these
medians.

The data of a figure comes from two rows of the comparison. The row with the statistic `p50` has the
medians, and the row with the statistic `max` has the longest values. Both rows have a cell for each
column.
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
"""The figures of the chart, in this order. A figure that no run has is left out."""
PICKED = "fault"
"""Name of a parameter of the chart, and also of a column in the chart's data. The parameter is the
fault that the reader picked. The chart draws the rows in which the column has the same fault.
"""
_WIDE = 720
"""Least width in pixels of a chart that has room for the text of `_value_text`. A narrower chart
has the text of `_short_text`.
"""

# The next numbers are sizes in pixels. From top to bottom, a figure consists of a heading, a part
# for each column, and an empty gap before the next figure.
_HEADER_HEIGHT = 26
_GAP = 12
_LINE_HEIGHT = 40
"""Height of the part of one column. It has a text with the column's name and figures, and below it
the line.
"""
_TEXT_Y = 9
"""Distance from the top of the part of a column to the middle of its text."""
_TEXT_HEIGHT = 18
"""Height of the text."""
_LINE_Y = 28
"""Distance from the top of the part of a column to its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The data of the chart, and the sizes that its specification needs."""

    rows: list[dict[str, Any]]
    """The data, in which a row is one mark."""
    faults: tuple[str, ...]
    """The faults about which there are figures. If there are several, the reader picks one."""
    height: int
    """The height of the chart in pixels. There is room for the fault with the most figures."""
    axis: LogAxis


def figure_lines(comparison: Comparison) -> Lines:
    """Return what the chart shows."""
    titles = [column.title for column in comparison.columns]
    rows: list[dict[str, Any]] = []
    faults = []
    height = 0
    values: list[int] = []  # all drawn values; `_lines_of_fault` appends them
    for fault in comparison.faults:
        fault_rows, fault_height = _lines_of_fault(fault, comparison.rows, titles, values)
        if fault_rows:
            faults.append(fault)
            rows += fault_rows
            height = max(height, fault_height)
    return Lines(
        rows=rows, faults=tuple(faults), height=height, axis=LogAxis.of(values, bound_us=0)
    )


def _lines_of_fault(
    fault: str, rows: Sequence[ComparisonRow], titles: Sequence[str], all_values: list[int]
) -> tuple[list[dict[str, Any]], int]:
    """Return the marks of one fault, and the height that they need in pixels.

    A figure that no run has is left out. The drawn values are appended to `all_values`, because the
    axis must be long enough for all of them.
    """
    top = 0
    data: list[dict[str, Any]] = []
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

        cells_of_columns = zip(
            titles, by_statistic["p50"].cells, by_statistic["max"].cells, strict=True
        )
        for title, p50, longest in cells_of_columns:
            line = _line(title, name, p50, longest, top, all_values)
            data += [{**row, PICKED: fault} for row in line]
            top += _LINE_HEIGHT
        top += _GAP
    return data, top


def _line(
    title: str,
    name: str,
    p50: Cell | None,
    longest: Cell | None,
    top: int,
    all_values: list[int],
) -> list[dict[str, Any]]:
    """Return one column's marks for one figure: its name, the line, the rings and the dot.

    `p50` and `longest` are the column's cells. If the column has several runs, the line reaches
    from the smallest p50 of a run to the largest maximum of a run.
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
    # If no run of the column has the figure, there are no cells. The condition on `p50` would be
    # enough, but the type checker needs all four conditions.
    if p50 is None or longest is None or p50.median is None or longest.high is None:
        return [{**name_row, "value": "missing", "short": "missing"}]
    low = p50.low if p50.low is not None else p50.median
    all_values += [low, p50.median, longest.high]
    # A single run has no ring, because it would be at the same place as the dot.
    ring_values = p50.values if p50.runs > 1 else ()
    says = f"{title}, {name}: p50 {p50.text}, longest {longest.text}"
    return [
        {**name_row, "value": _value_text(p50, longest), "short": _short_text(p50, longest)},
        {"mark": "line", "y": y, "from": low, "to": longest.high, "says": says},
        *({"mark": "run", "y": y, "from": value} for value in ring_values),
        {"mark": "dot", "y": y, "from": p50.median, "says": says},
    ]


def _value_text(p50: Cell, longest: Cell) -> str:
    """Return the figures of one column as text, such as `1.1 s, max 8.2 s`."""
    return p50.text if p50.text == longest.text else f"{p50.text}, max {longest.text}"


def _short_text(p50: Cell, longest: Cell) -> str:
    """Return the text of `_value_text` without the ranges over several runs, for a phone."""
    texts = [
        duration_text(cell.median, bound_us=cell.bound_us)
        for cell in (p50, longest)
        if cell.median is not None
    ]
    # If both texts are equal, one of them is left out: `1.1 s` instead of `1.1 s, max 1.1 s`.
    return ", max ".join(dict.fromkeys(texts))


def comparison_chart(data: str, lines: Lines) -> alt.TopLevelMixin:
    """Return the specification of the chart, whose data has the name `data`."""
    y_scale = alt.Scale(domain=[0, lines.height], reverse=True, nice=False, zero=False)
    y = alt.Y("y:Q", scale=y_scale, axis=None)
    x = lines.axis.x("from")
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData(data))
    has_pick = len(lines.faults) > 1
    if has_pick:
        # On the left, PICKED names the column of the data, and on the right the parameter.
        base = base.transform_filter(f"datum[{PICKED!r}] == {PICKED}")

    def only(mark: str) -> alt.Chart:
        """Return the rows of the data whose `mark` is this word."""
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
        # With `dir="rtl"`, a name that is too long is shown without its beginning.
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
    return chart.add_params(alt.param(name=PICKED, value="")) if has_pick else chart
