"""The picture that shows which phase of a failover took the time: its phases in a row, to scale.

For example, from the fault until a member was served again, a line has three bars one behind the
other: "notice 3.0 s", "rediscover 0.1 s" and "accept 6.2 s". These phases of a member are the
client chain. The phases of a partition of `__consumer_offsets`, from the fault until it has a new
coordinator, are the broker chain. The picture has two lines for each chain: one for the median
member or partition, and one for the slowest.

The other charts of the section have a logarithmic axis, so that every phase is visible. On such an
axis a long phase looks hardly longer than the others. This picture has a linear axis.
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
# Distances in pixels from the top of a line.
_TEXT_Y = 11
"""To the middle of its heading."""
_HEADER_HEIGHT = 20
"""To the end of the area of the heading."""
_BAR_Y, _BAR_Y2 = 22, 42
"""To the top and the bottom of its bars."""
_WIDE = 520
"""A picture of at least this width in pixels has room for the names of the subjects."""
_NAMES = tuple(name for name, _, _ in (*BROKER_STEPS, *CLIENT_STEPS))
"""The names of all phases, of the broker chain and then of the client chain."""
_LEGEND_LABEL = (
    f"datum.label == '{BROKER_STEPS[0][0]}' ? 'broker chain: ' + datum.label : "
    f"datum.label == '{CLIENT_STEPS[0][0]}' ? 'client chain: ' + datum.label : datum.label"
)
"""A Vega expression for the labels of the legend: the phases of both chains, in order.

The label of the first phase of each chain begins with the chain's name.
"""
_ON_LIGHT = "#1d2430"
_INSIDE_INK = (PAPER, _ON_LIGHT, _ON_LIGHT, PAPER, _ON_LIGHT, PAPER, _ON_LIGHT)
"""Colour of the text on the bar of each phase, in the order of _NAMES.

PAPER, the colour of the background, is for bars with a dark colour of SERIES. A light colour of
SERIES is light in the dark theme, too, so the text on it is always dark (_ON_LIGHT).
"""
_SHOWN_INSIDE = 110
"""A bar longer than this, in pixels, has the name and the length of its phase inside."""


def order_rows(rows: FaultRows) -> list[dict[str, Any]]:
    """Return the data of the chart: a row for each phase of up to two subjects of each chain.

    - `from`, `to`: beginning and end of the phase in seconds after the fault; `end`: end of the
      last phase in the line.
    - `y`, `y2` and other positions: pixels from the top.
    - `title`, `short`: the heading of the line, for a wide and for a narrow picture; only the row
      of the line's first phase has them.
    - `longest`: 1 for the longest phase of the line, else 0.
    """
    data: list[dict[str, Any]] = []
    lines = 0
    # For each chain: its name, the column with the names of its subjects, and its rows and steps.
    chains = (
        ("broker chain", "partition", rows_to_describe(rows.broker), BROKER_STEPS),
        ("client chain", "consumer", rows.client, CLIENT_STEPS),
    )
    for chain, subject_column, chain_rows, steps in chains:
        by_speed = complete_paths(chain_rows, steps, subject=subject_column)
        for label, path in _median_and_slowest(by_speed):
            subject = path.row[subject_column]
            top = lines * ROW_HEIGHT
            data += _line(f"{chain}: {subject}{label}", f"{chain}{label}", path, top)
            lines += 1
    return data


def lines_of(rows: Sequence[dict[str, Any]]) -> int:
    """Return the number of lines in the data of a chart. All phases of a line have the same `y`."""
    return len({row["y"] for row in rows})


def _median_and_slowest(by_speed: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the median path, and the slowest path if it took longer, each with a label.

    A label follows the name of the subject. A single path needs none, so its label is "".
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


def _line(name: str, short: str, path: Path, top: int) -> list[dict[str, Any]]:
    """Return the rows of one line, which begins `top` pixels from the top.

    `name` and `short` are its headings, without the length, for a wide and for a narrow picture.
    """
    begin_us = path.phases[0][1]
    whole = duration_text(path.whole_us)
    heading = {
        "title": f"{name}: {whole}",
        "short": f"{short}: {whole}",
        "top": top,
        "bottom": top + _HEADER_HEIGHT,
    }
    # A phase is a tuple of name, beginning and end. `longest` is the name of the longest one.
    longest = max(path.phases, key=lambda phase: phase[2] - phase[1])[0]
    end_us = path.phases[-1][2]
    return [
        {
            "phase": phase,
            "end": (end_us - begin_us) / 1e6,
            "longest": int(phase == longest),
            "from": (from_us - begin_us) / 1e6,
            "to": (to_us - begin_us) / 1e6,
            "y": top + _BAR_Y,
            "y2": top + _BAR_Y2,
            "text_y": top + _TEXT_Y,
            "middle_y": top + (_BAR_Y + _BAR_Y2) / 2,
            **(heading if phase == path.phases[0][0] else {}),
            "ink": _INSIDE_INK[_NAMES.index(phase)],
            "says": f"{phase} {duration_text(to_us - from_us)}",
        }
        for phase, from_us, to_us in path.phases
    ]


def order_chart(data: str, lines: int) -> alt.TopLevelMixin:
    """Return the picture of `lines` subjects; `data` is the name of its data in the specification.

    The text of a phase is inside its bar if it fits. If the longest phase is too short for its
    text, the text is to the right of the line's last bar, if there is room.
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
    # Vega evaluates these expressions in the page, where the width of the picture is known:
    # `pixels` is the length of a bar, `inside` the text in the bar, `room` is true if there is
    # space behind the last bar, and `beside` is the text in that space.
    pixels = "(scale('x', datum.to) - scale('x', datum.from))"
    inside = f"{pixels} > {_SHOWN_INSIDE} ? datum.says : ''"
    room = f"width - scale('x', datum.end) > {_SHOWN_INSIDE}"
    beside = f"datum.longest && {pixels} <= {_SHOWN_INSIDE} && {room} ? datum.says : ''"
    return alt.layer(
        base.mark_rect(stroke=PAPER, strokeWidth=1).encode(
            x=x,
            x2="to:Q",
            y=y,
            y2="y2:Q",
            fill=alt.Fill(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=list(_NAMES), range=list(SERIES[: len(_NAMES)])),
                legend=alt.Legend(
                    symbolType="square",
                    labelExpr=_LEGEND_LABEL,
                    columns=alt.ExprRef(f"width < {_WIDE} ? 2 : {len(_NAMES)}"),
                ),
            ),
            tooltip=alt.Tooltip("says:N", title=" "),
        ),
        base.mark_text(
            align="left",
            baseline="middle",
            dx=6,
            fill=alt.ExprRef("datum.ink"),
            text=alt.ExprRef(inside),
        ).encode(x=x, y=alt.Y("middle_y:Q", scale=y_scale, axis=None)),
        base.mark_text(
            align="left", baseline="middle", dx=6, fill=INK, text=alt.ExprRef(beside)
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
