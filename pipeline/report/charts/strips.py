"""Strips: rows of a chart, each of which shows the distribution of one measure.

A measure of a fault has a value for each of its subjects: the measure `detect` for each offsets
partition, for example, or `accept` for each member. In a strip, each subject has a dot. If there
are many subjects, bars count them instead, so that the data of a strip is bounded. All strips of a
section share one logarithmic axis, on which 20 us and 8 s are both visible. Lengths are in
microseconds.

The clocks' error is the largest difference between the clocks of the run's machines. It is 0 on one
machine. If a measured length is below this error, the true length can be anything up to the error.
`bound_us` is the clocks' error for a measure.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.report.charts.chart import INK, LINE, MUTED, PAPER
from pipeline.report.charts.log_axis import LogAxis
from pipeline.summary.figures import PERCENTS, Distribution, duration_text, length_text
from pipeline.summary.story import counted

ROW_HEIGHT = 64
"""Height of a strip in pixels. Its name and figures are above, its picture is below."""
MAX_DOTS = 60
"""Maximum number of subjects that have a dot each. More subjects are counted in bars."""
_DOT_BINS, _BAR_BINS = 48, 100
"""The axis is divided into this number of parts. Dots of one part are stacked (_DOT_BINS); a bar
counts the subjects of one part (_BAR_BINS).
"""
_HEADER_Y, _HEADER_HEIGHT, _CENTRE_Y = 12, 22, 42
"""Distances in pixels from the top of a strip to the middle of its text, to the end of its header,
and to its line.
"""
_SPREAD = 13
"""The dots or bars of a strip reach at most this number of pixels above and below its line."""
_DOT_STEP = 7
"""Distance in pixels between two stacked dots, if there is room."""
_WIDE = 440
"""A picture of at least this width in pixels has room for all figures beside the names of its
strips.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One measure over its subjects.

    - `values`: pairs of subject and microseconds, in any order.
    - `figures`: the distribution of these values, as the run's summary has it.
    - `note`: a text on the subjects without a value.
    """

    name: str
    values: tuple[tuple[str, int], ...]
    figures: Distribution
    subject: str  # the word for a subject, such as "member"
    note: str = ""


def distribution_of(lengths: Sequence[int], *, missing: int, bound_us: int = 0) -> Distribution:
    """Return the figures of sorted lengths. A percentile is one of the lengths (nearest rank)."""
    return Distribution(
        samples=len(lengths),
        missing=missing,
        percentiles={
            # -(-a // b) is a / b rounded up: the rank of the percentile, counted from 1.
            percent: lengths[-(-len(lengths) * percent // 100) - 1]
            for percent in PERCENTS
            if lengths
        },
        maximum=lengths[-1] if lengths else None,
        bound_us=bound_us,
    )


def axis_over(strips: Iterable[Strip]) -> LogAxis:
    """Return the axis that shows every value of some strips, and the clocks' error."""
    shown = list(strips)
    values = [value for strip in shown for _, value in strip.values]
    return LogAxis.of(values, bound_us=max((strip.figures.bound_us for strip in shown), default=0))


def figures_text(strip: Strip) -> tuple[str, str]:
    """Return a strip's figures as two texts: all figures, and the fewer ones for a phone.

    On a phone, a strip has only the median and the longest value.
    """
    figures = strip.figures
    if not figures.samples:
        return strip.note or "none", strip.note or "none"
    known = [
        (label, value)
        for label, value in (
            ("p50", figures.percentile(50)),
            ("p90", figures.percentile(90)),
            ("max", figures.maximum),
        )
        if value is not None
    ]
    texts = [f"{label} {length_text(value, bound_us=figures.bound_us)}" for label, value in known]
    number = counted(figures.samples, strip.subject)
    if strip.note:
        number += f", {strip.note}"
    short = [text for text in texts if not text.startswith("p90")]
    return f"{', '.join(texts)}; {number}", ", ".join(short)


def strip_rows(strips: Sequence[Strip], axis: LogAxis, **common: str) -> list[dict[str, Any]]:
    """Return the data for `strip_chart`: strips below one another.

    In a row, `mark` is the kind of mark (`name`, `band`, `range`, `dot`, `bar`, `p50`, `p90` or
    `max`), and `y` is in pixels from the top. `common` are columns that every row gets.
    """
    rows: list[dict[str, Any]] = []
    for index, strip in enumerate(strips):
        top = index * ROW_HEIGHT
        rows += [{**row, **common} for row in _rows_of(strip, axis, top)]
    return rows


def _rows_of(strip: Strip, axis: LogAxis, top: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one strip, which begins `top` pixels from the top."""
    centre = top + _CENTRE_Y
    full, short = figures_text(strip)
    yield {
        "mark": "name",
        "y": top + _HEADER_Y,
        "top": top,
        "bottom": top + _HEADER_HEIGHT,
        "name": strip.name,
        "figures": full,
        "short": short,
        "line_y": centre,
    }

    figures = strip.figures
    values = sorted(strip.values, key=lambda pair: (pair[1], pair[0]))
    if not values or figures.maximum is None:
        return
    if figures.bound_us:
        yield {
            "mark": "band",
            # The band is 3 pixels higher and lower than the dots.
            "y": centre - _SPREAD - 3,
            "y2": centre + _SPREAD + 3,
            "from": 0,
            "to": figures.bound_us,
            "says": f"< {duration_text(figures.bound_us)}: the clocks' error",
        }
    yield {
        "mark": "range",
        "y": centre,
        "from": _drawn_at_us(values[0][1], figures.bound_us),
        "to": _drawn_at_us(values[-1][1], figures.bound_us),
    }

    yield from (
        _dots(values, axis, centre, figures.bound_us)
        if len(values) <= MAX_DOTS
        else _bars(values, axis, centre, strip.subject, figures.bound_us)
    )
    for mark, value in (
        ("p50", figures.percentile(50)),
        ("p90", figures.percentile(90)),
        ("max", figures.maximum),
    ):
        if value is not None:
            text = duration_text(value, bound_us=figures.bound_us)
            # The line of the median is the longest one.
            half = _SPREAD + 5 if mark == "p50" else _SPREAD - 4
            yield {
                "mark": mark,
                "from": _drawn_at_us(value, figures.bound_us),
                "y": centre - half,
                "y2": centre + half,
                "says": f"{mark} of {strip.name}: {text}",
            }


def _drawn_at_us(value_us: int, bound_us: int) -> int:
    """Return where a value is drawn: at the clocks' error, if it is smaller than this error."""
    return bound_us if abs(value_us) < bound_us else value_us


def _dots(
    values: Sequence[tuple[str, int]], axis: LogAxis, centre: int, bound_us: int
) -> Iterator[dict[str, Any]]:
    """Yield a dot for each value. Dots in one part of the axis are stacked, half above the line."""
    for stacked in _divide_into_bins(values, axis, bound_us, _DOT_BINS).values():
        # Half of the dots are above the line, in _SPREAD pixels. Many dots are closer together.
        step = min(_DOT_STEP, _SPREAD / max(1, len(stacked) // 2))
        for index, (subject, value) in enumerate(stacked):
            yield {
                "mark": "dot",
                "from": _drawn_at_us(value, bound_us),
                "y": round(centre + _off_centre(index) * step, 1),
                "says": f"{subject}: {duration_text(value, bound_us=bound_us)}",
            }


def _off_centre(index: int) -> int:
    """Return the steps from the line to a dot of a stack: 0, 1, -1, 2 for the dots 0, 1, 2, 3."""
    return (index + 1) // 2 * (1 if index % 2 else -1)


def _bars(
    values: Sequence[tuple[str, int]], axis: LogAxis, centre: int, subject: str, bound_us: int
) -> Iterator[dict[str, Any]]:
    """Yield a bar for each part of the axis with values; its height shows their number."""
    bins = _divide_into_bins(values, axis, bound_us, _BAR_BINS)
    most = max(len(in_part) for in_part in bins.values())
    for index, in_part in bins.items():
        half = max(1.0, _SPREAD * len(in_part) / most)
        # The values of a part are sorted: the first is the shortest, the last the longest.
        shortest, longest = (
            duration_text(value, bound_us=bound_us) for _, value in (in_part[0], in_part[-1])
        )
        between = shortest if shortest == longest else f"{shortest} to {longest}"
        yield {
            "mark": "bar",
            "from": axis.value(index / _BAR_BINS),
            "to": axis.value((index + 1) / _BAR_BINS),
            "y": round(centre - half, 1),
            "y2": round(centre + half, 1),
            "says": f"{counted(len(in_part), subject)}: {between}",
        }


def _divide_into_bins(
    values: Sequence[tuple[str, int]], axis: LogAxis, bound_us: int, number: int
) -> dict[int, list[tuple[str, int]]]:
    """Return values by the part of the axis in which they lie.

    The axis has `number` equal parts, counted from 0. Inside a part, values keep their order.
    """
    bins: dict[int, list[tuple[str, int]]] = {}
    # The greatest value can lie at the axis's end; `min` puts it into the last part.
    for subject, value in values:
        index = min(number - 1, int(axis.place(_drawn_at_us(value, bound_us)) * number))
        bins.setdefault(index, []).append((subject, value))
    return bins


def strip_chart(
    data: str, rows: int, axis: LogAxis, fill: str, *, picked: str | None = None
) -> alt.TopLevelMixin:
    """Return the picture of up to `rows` strips in the data with the name `data`.

    `picked` is the name of both a column and a parameter: a row is drawn only if its column has the
    parameter's value. With None, all rows are drawn.
    """
    y_scale = alt.Scale(domain=[0, rows * ROW_HEIGHT], reverse=True, nice=False, zero=False)
    y = alt.Y("y:Q", scale=y_scale, axis=None)
    x = axis.x("from")
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData(data))
    if picked is not None:
        base = base.transform_filter(f"datum[{picked!r}] == {picked}")

    def only(*marks: str) -> alt.Chart:
        return base.transform_filter(alt.FieldOneOfPredicate(field="mark", oneOf=list(marks)))

    names = only("name")
    chart = alt.layer(
        names.mark_rect(fill=PAPER).encode(
            x=alt.value(0),
            x2=alt.value("width"),
            y=alt.Y("top:Q", scale=y_scale, axis=None),
            y2="bottom:Q",
        ),
        names.mark_rule(stroke=LINE, strokeDash=[1, 3]).encode(
            x=alt.value(0), x2=alt.value("width"), y=alt.Y("line_y:Q", scale=y_scale, axis=None)
        ),
        only("band")
        .mark_rect(fill=LINE, fillOpacity=0.55)
        .encode(x=x, x2="to:Q", y=y, y2="y2:Q", tooltip=says),
        only("range").mark_rule(stroke=MUTED, strokeWidth=1.5).encode(x=x, x2="to:Q", y=y),
        only("p90", "max")
        .mark_rule(stroke=INK, strokeWidth=1)
        .encode(x=x, y=y, y2="y2:Q", tooltip=says),
        only("p50")
        .mark_rule(stroke=INK, strokeWidth=2.5)
        .encode(x=x, y=y, y2="y2:Q", tooltip=says),
        only("bar")
        .mark_rect(fill=fill, stroke=PAPER, strokeWidth=0.5)
        .encode(x=x, x2="to:Q", y=y, y2="y2:Q", tooltip=says),
        only("dot")
        .mark_circle(fill=fill, size=48, opacity=1, stroke=PAPER, strokeWidth=0.8)
        .encode(x=x, y=y, tooltip=says),
        names.mark_text(align="left", baseline="middle", fontWeight="bold", fill=INK).encode(
            x=alt.value(0), y=y, text="name:N"
        ),
        names.mark_text(
            align="right",
            baseline="middle",
            fill=INK,
            text=alt.ExprRef(f"width < {_WIDE} ? datum.short : datum.figures"),
        ).encode(x=alt.value("width"), y=y),
    ).properties(width="container", height=rows * ROW_HEIGHT)
    return chart if picked is None else chart.add_params(alt.param(name=picked, value=""))
