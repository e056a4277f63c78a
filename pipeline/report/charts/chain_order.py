"""The chart that shows which phase of a failover took the time, as bars in a row.

A line of the chart has a bar for each phase. For example, the line of a member has three bars, from
the fault until the member was served again: "notice 3.0 s", "rediscover 0.1 s" and "accept 6.2 s".
There is a line for the median member, and a line for the slowest member. Two more lines are about
the median and the slowest partition of `__consumer_offsets`. Their bars are the phases until the
partition has a new coordinator.

The other charts of the section have a logarithmic axis. All phases are visible on it, but a long
phase looks hardly longer than a short phase. So this chart has a linear axis.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt

from pipeline.report.charts.chart import INK, PAPER, SERIES
from pipeline.report.charts.fault_strips import FaultRows
from pipeline.report.sentences.chain_words import (
    BROKER_STEPS,
    CLIENT_STEPS,
    Path,
    complete_paths,
    median_path,
    rows_to_describe,
)
from pipeline.summary.figures import duration_text

ROW_HEIGHT = 52
"""Height of a line in pixels."""
# The next numbers are distances in pixels from the top of a line.
_TEXT_Y = 11
"""Distance to the middle of the heading."""
_HEADER_HEIGHT = 20
"""Distance to the end of the heading's area."""
_BAR_Y, _BAR_Y2 = 22, 42
"""Distances to the top and to the bottom of the bars."""
_WIDE = 520
"""Least width in pixels of a chart that has room for the names of members and partitions."""
_PHASES = tuple(name for name, _, _ in (*BROKER_STEPS, *CLIENT_STEPS))
"""The names of all phases: first the phases of partitions, then the phases of members."""
_FIRST_OF_BROKER, _FIRST_OF_CLIENT = BROKER_STEPS[0][0], CLIENT_STEPS[0][0]
"""The names of the first phase of each chain."""
_LEGEND_LABEL = (
    f"datum.label == '{_FIRST_OF_BROKER}' ? 'broker chain: ' + datum.label : "
    f"datum.label == '{_FIRST_OF_CLIENT}' ? 'client chain: ' + datum.label : datum.label"
)
"""A Vega expression for the labels of the legend, which are the names of the phases. The label of
the first phase of each chain begins with the name of the chain.
"""
_ON_LIGHT = "#1d2430"
_TEXT_COLOURS = (PAPER, _ON_LIGHT, _ON_LIGHT, PAPER, _ON_LIGHT, PAPER, _ON_LIGHT)
"""Colour of the text on the bar of each phase, in the order of _PHASES.

PAPER, the colour of the background, is for bars with a dark colour of SERIES. A light colour of
SERIES is light in the dark theme, too, so the text on it is always dark (_ON_LIGHT).
"""
_TEXT_INDENT = 6
"""Distance in pixels from the beginning of a bar to its text, or from the last bar to the text
behind it."""
_LONG_ENOUGH = 110
"""Length in pixels that a bar must exceed to have room for the name and the length of a phase."""


def order_rows(rows: FaultRows) -> list[dict[str, Any]]:
    """Return the data of the chart, in which each row is a bar: a phase of a member or partition.

    - `phase`: the name of the phase.
    - `from`, `to`: beginning and end of the phase in seconds after the fault.
    - `end`: end of the last phase in the line.
    - `longest`: 1 for the longest phase of the line, else 0.
    - `y`, `y2`, `text_y`, `middle_y`: positions in pixels from the top.
    - `ink`: colour of the text on the bar.
    - `says`: the text, which has the name and the length of the phase.

    Only the first bar of a line also has these columns:

    - `title`, `short`: the heading of the line, for a wide and for a narrow chart.
    - `top`, `bottom`: the ends of the heading's area in pixels from the top.
    """
    data: list[dict[str, Any]] = []
    for label, path in _median_and_slowest(
        complete_paths(rows_to_describe(rows.broker), BROKER_STEPS, subject="partition")
    ):
        heading = f"broker chain: {path.row['partition']}{label}"
        data += _line(heading, f"broker chain{label}", path, lines_of(data) * ROW_HEIGHT)
    for label, path in _median_and_slowest(
        complete_paths(rows.client, CLIENT_STEPS, subject="consumer")
    ):
        heading = f"client chain: {path.row['consumer']}{label}"
        data += _line(heading, f"client chain{label}", path, lines_of(data) * ROW_HEIGHT)
    return data


def lines_of(rows: Sequence[dict[str, Any]]) -> int:
    """Return the number of lines in the data of a chart. All bars of a line have the same `y`."""
    return len({row["y"] for row in rows})


def _median_and_slowest(by_speed: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the median path, and the slowest path if it is slower, each with a label.

    The label follows the name of the member or partition: `consumer-3, the slowest`. If there is
    only one path, its label is "".
    """
    if not by_speed:
        return []
    if len(by_speed) == 1:
        return [("", by_speed[0])]
    median, slowest = median_path(by_speed), by_speed[-1]
    labelled = [(f", the median of {len(by_speed):,}", median)]
    if slowest.whole_us > median.whole_us:
        labelled.append((", the slowest", slowest))
    return labelled


def _line(title: str, short_title: str, path: Path, top: int) -> list[dict[str, Any]]:
    """Return the bars of one line, which begins `top` pixels from the top.

    `short_title` is for a narrow chart. The length of the whole line is appended to both titles.
    """
    whole = duration_text(path.whole_us)
    # A phase has a name, a beginning and an end. The first phase begins with the fault.
    _, fault_us, _ = path.phases[0]
    longest_phase, _, _ = max(path.phases, key=lambda phase: phase[2] - phase[1])
    rows: list[dict[str, Any]] = [
        {
            "phase": phase,
            "end": path.whole_us / 1e6,
            "longest": int(phase == longest_phase),
            "from": (from_us - fault_us) / 1e6,
            "to": (to_us - fault_us) / 1e6,
            "y": top + _BAR_Y,
            "y2": top + _BAR_Y2,
            "text_y": top + _TEXT_Y,
            "middle_y": top + (_BAR_Y + _BAR_Y2) / 2,
            "ink": _TEXT_COLOURS[_PHASES.index(phase)],
            "says": f"{phase} {duration_text(to_us - from_us)}",
        }
        for phase, from_us, to_us in path.phases
    ]
    rows[0] |= {
        "title": f"{title}: {whole}",
        "short": f"{short_title}: {whole}",
        "top": top,
        "bottom": top + _HEADER_HEIGHT,
    }
    return rows


def order_chart(data: str, lines: int) -> alt.TopLevelMixin:
    """Return the specification of the chart, whose data has the name `data`.

    The text of a phase, such as "accept 6.2 s", is inside its bar if it fits. If no text fits into
    its bar, the text of the longest phase stands to the right of the last bar, if there is room.
    """
    y_scale = alt.Scale(domain=[0, lines * ROW_HEIGHT], reverse=True, nice=False, zero=False)
    base = alt.Chart(alt.NamedData(data))
    headings = base.transform_filter("isValid(datum.title)")
    x = alt.X(
        "from:Q",
        title="seconds after the fault",
        scale=alt.Scale(nice=False, zero=True),
        axis=alt.Axis(labelFlush=True, format="~f"),
    )
    y = alt.Y("y:Q", scale=y_scale, axis=None)
    # Vega evaluates these expressions in the page, where the width of the chart is known.
    bar_length = "(scale('x', datum.to) - scale('x', datum.from))"
    text_in_bar = f"{bar_length} > {_LONG_ENOUGH} ? datum.says : ''"
    has_room_behind = f"width - scale('x', datum.end) > {_LONG_ENOUGH}"
    text_behind_line = (
        f"datum.longest && {bar_length} <= {_LONG_ENOUGH} && {has_room_behind} ? datum.says : ''"
    )
    return alt.layer(
        base.mark_rect(stroke=PAPER, strokeWidth=1).encode(
            x=x,
            x2="to:Q",
            y=y,
            y2="y2:Q",
            fill=alt.Fill(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=list(_PHASES), range=list(SERIES[: len(_PHASES)])),
                legend=alt.Legend(
                    symbolType="square",
                    labelExpr=_LEGEND_LABEL,
                    columns=alt.ExprRef(f"width < {_WIDE} ? 2 : {len(_PHASES)}"),
                ),
            ),
            tooltip=alt.Tooltip("says:N", title=" "),
        ),
        base.mark_text(
            align="left",
            baseline="middle",
            dx=_TEXT_INDENT,
            fill=alt.ExprRef("datum.ink"),
            text=alt.ExprRef(text_in_bar),
        ).encode(x=x, y=alt.Y("middle_y:Q", scale=y_scale, axis=None)),
        base.mark_text(
            align="left",
            baseline="middle",
            dx=_TEXT_INDENT,
            fill=INK,
            text=alt.ExprRef(text_behind_line),
        ).encode(x=alt.X("end:Q", title=None), y=alt.Y("middle_y:Q", scale=y_scale, axis=None)),
        # An empty rectangle behind each heading hides the lines of the grid there.
        headings.mark_rect(fill=PAPER).encode(
            x=alt.value(0),
            x2=alt.value("width"),
            y=alt.Y("top:Q", scale=y_scale, axis=None),
            y2="bottom:Q",
        ),
        headings.mark_text(
            align="left",
            baseline="middle",
            fill=INK,
            text=alt.ExprRef(f"width < {_WIDE} ? datum.short : datum.title"),
        ).encode(x=alt.value(0), y=alt.Y("text_y:Q", scale=y_scale, axis=None)),
    ).properties(width="container", height=lines * ROW_HEIGHT)
