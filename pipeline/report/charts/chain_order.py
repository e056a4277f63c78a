"""The phases of single subjects in their order: both chains on one linear axis from the fault on.

A logarithmic strip shows every phase and hides how unequal they are; this shows how unequal they
are. It has the median subject of each chain and the slowest, never a sum over subjects.
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
    middle_path,
    paths,
    with_groups,
)
from pipeline.summary.figures import duration_text

ROW_HEIGHT = 52
_HEADER_HEIGHT, _TEXT_Y, _BAR_Y, _BAR_Y2 = 20, 11, 22, 42
_WIDE = 520
"""Pixels of width from which on a line has its subject's name."""
_NAMES = tuple(name for name, _, _ in (*BROKER_STEPS, *CLIENT_STEPS))
_LEGEND_LABEL = (
    f"datum.label == '{BROKER_STEPS[0][0]}' ? 'broker chain: ' + datum.label : "
    f"datum.label == '{CLIENT_STEPS[0][0]}' ? 'client chain: ' + datum.label : datum.label"
)
"""The legend has both chains, each in its order: it says where one begins."""
_ON_LIGHT = "#1d2430"
_INSIDE_INK = (PAPER, _ON_LIGHT, _ON_LIGHT, PAPER, _ON_LIGHT, PAPER, _ON_LIGHT)
"""What is readable on each colour of a phase, in the light and in the dark: the lighter colours of
SERIES are light in both."""
_SHOWN_INSIDE = 110
"""Pixels from which on a phase has its name and length inside."""


def order_rows(rows: FaultRows) -> list[dict[str, Any]]:
    """Return the data of the chart: a row for each phase of up to two subjects of each chain.

    Units: `from` and `to` are seconds after the fault. Shape: `first` marks the row that carries
    the subject's name, `y`... are pixels from the top.
    """
    found: list[dict[str, Any]] = []
    lines = 0
    chains = (
        ("broker chain", paths(with_groups(rows.broker), BROKER_STEPS, subject="partition")),
        ("client chain", paths(rows.client, CLIENT_STEPS, subject="consumer")),
    )
    for chain, ways in chains:
        for label, path in _chosen(ways):
            subject = path.row["partition" if chain == "broker chain" else "consumer"]
            top = lines * ROW_HEIGHT
            found += _line(f"{chain}: {subject}{label}", f"{chain}{label}", path, top)
            lines += 1
    return found


def lines_of(rows: Sequence[dict[str, Any]]) -> int:
    """Return how many subjects the data of a chart has."""
    return len({row["y"] for row in rows})


def _chosen(ways: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the median subject, and the slowest where that is another."""
    if not ways:
        return []
    if len(ways) == 1:
        return [("", ways[0])]
    chosen, slowest = middle_path(ways), ways[-1]
    found = [(f", the median of {len(ways):,}", chosen)]
    if slowest.whole_us > chosen.whole_us:
        found.append((", the slowest", slowest))
    return found


def _line(name: str, short: str, path: Path, top: int) -> list[dict[str, Any]]:
    begin_us = path.steps[0][1]
    whole = duration_text(path.whole_us)
    heading = {
        "title": f"{name}: {whole}",
        "short": f"{short}: {whole}",
        "top": top,
        "bottom": top + _HEADER_HEIGHT,
    }
    longest = max(path.steps, key=lambda step: step[2] - step[1])[0]
    end_us = path.steps[-1][2]
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
            **(heading if phase == path.steps[0][0] else {}),
            "ink": _INSIDE_INK[_NAMES.index(phase)],
            "says": f"{phase} {duration_text(to_us - from_us)}",
        }
        for phase, from_us, to_us in path.steps
    ]


def order_chart(data: str, lines: int) -> alt.TopLevelMixin:
    """Return the picture of `lines` subjects in the named data."""
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
