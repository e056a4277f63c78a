"""Strips: rows of a chart, each of which shows the distribution of one measure.

For example, the measure `accept` says how long it took each member, after it had found its new
coordinator, until this coordinator accepted it. Its strip has a dot for each member, at this
length. What has a dot, here a member, is a subject of the measure; of other measures it is a
partition or a group. If there are many subjects, bars count them instead, so that the data of a
strip is bounded. All strips of a section share one logarithmic axis, on which 20 us and 8 s are
both visible.

Lengths are in microseconds. On several machines, a length can be wrong by the largest difference
between the clocks of these machines: this is the clocks' error, `bound_us` in the code. A length
below it can in truth be anything from 0 up to the error. On one machine, the error is 0.
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
_DOT_BINS = 48
"""For dots, the axis is divided into this number of parts. The dots of one part are stacked."""
_BAR_BINS = 100
"""For bars, the axis is divided into this number of parts. A bar counts the subjects of a part."""
# Distances in pixels from the top of a strip.
_HEADER_Y = 12
"""To the middle of its text: name and figures."""
_HEADER_HEIGHT = 22
"""To the end of the area of this text."""
_CENTRE_Y = 42
"""To the horizontal line on which the dots or bars are."""
_SPREAD = 13
"""The dots or bars of a strip reach at most this number of pixels above and below its line."""
_DOT_STEP = 7
"""Distance in pixels between two stacked dots, if there is room."""
_WIDE = 440
"""A picture of at least this width in pixels has room for all figures of a strip. A narrower one,
on a phone, has only the figures that `figures_text` returns for a phone.
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
    """Return the figures of sorted lengths; `missing` is the number of subjects without a length.

    A percentile is one of the lengths (nearest rank): of ten lengths, the 90th percentile is the
    ninth one.
    """
    percentiles = (
        {percent: _percentile(lengths, percent) for percent in PERCENTS} if lengths else {}
    )
    return Distribution(
        samples=len(lengths),
        missing=missing,
        percentiles=percentiles,
        maximum=lengths[-1] if lengths else None,
        bound_us=bound_us,
    )


def _percentile(sorted_lengths: Sequence[int], percent: int) -> int:
    # -(-a // b) is a / b rounded up.
    rank_from_1 = -(-len(sorted_lengths) * percent // 100)
    return sorted_lengths[rank_from_1 - 1]


def axis_over(strips: Iterable[Strip]) -> LogAxis:
    """Return the axis that shows every value of some strips, and the clocks' error."""
    shown = list(strips)
    values = [value for strip in shown for _, value in strip.values]
    return LogAxis.of(values, bound_us=max((strip.figures.bound_us for strip in shown), default=0))


def figures_text(strip: Strip) -> tuple[str, str]:
    """Return a strip's figures as two texts: the first for a wide screen, the second for a phone.

    For example, `p50 2 ms, p90 4 ms, max 5 ms; 10 members` and `p50 2 ms, max 5 ms`.
    """
    figures = strip.figures
    if not figures.samples:
        return strip.note or "none", strip.note or "none"
    labelled = [
        (label, value)
        for label, value in (
            ("p50", figures.percentile(50)),
            ("p90", figures.percentile(90)),
            ("max", figures.maximum),
        )
        if value is not None
    ]
    texts = [
        f"{label} {length_text(value, bound_us=figures.bound_us)}" for label, value in labelled
    ]
    subjects = counted(figures.samples, strip.subject)
    if strip.note:
        subjects += f", {strip.note}"
    texts_on_phone = [text for text in texts if not text.startswith("p90")]
    return f"{', '.join(texts)}; {subjects}", ", ".join(texts_on_phone)


def strip_rows(strips: Sequence[Strip], axis: LogAxis, **common: str) -> list[dict[str, Any]]:
    """Return the data for `strip_chart`: strips below one another.

    A row is one mark of the picture. Its `mark` is the kind:

    - `name`: the text above the strip
    - `band`: the grey area of lengths below the clocks' error
    - `range`: the line from the shortest to the longest value
    - `dot` or `bar`: one subject, or a number of subjects
    - `p50`, `p90`, `max`: a vertical line at this figure

    `from` and `to` are in microseconds, `y` and `y2` in pixels from the top. `says` is the tooltip.
    `common` are columns that every row gets.
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

    if len(values) <= MAX_DOTS:
        yield from _dots(values, axis, centre, figures.bound_us)
    else:
        yield from _bars(values, axis, centre, strip.subject, figures.bound_us)
    for mark, value in (
        ("p50", figures.percentile(50)),
        ("p90", figures.percentile(90)),
        ("max", figures.maximum),
    ):
        if value is not None:
            text = duration_text(value, bound_us=figures.bound_us)
            # The median is the most important figure, so its line is longer than the dots reach.
            half_length = _SPREAD + 5 if mark == "p50" else _SPREAD - 4
            yield {
                "mark": mark,
                "from": _drawn_at_us(value, figures.bound_us),
                "y": centre - half_length,
                "y2": centre + half_length,
                "says": f"{mark} of {strip.name}: {text}",
            }


def _drawn_at_us(value_us: int, bound_us: int) -> int:
    """Return where a value is drawn: at the clocks' error, if it is smaller than this error."""
    return bound_us if abs(value_us) < bound_us else value_us


def _dots(
    values: Sequence[tuple[str, int]], axis: LogAxis, centre: int, bound_us: int
) -> Iterator[dict[str, Any]]:
    """Yield a dot for each value.

    Dots in one part of the axis would cover each other. So they are stacked on the line,
    alternately above and below it.
    """
    for stacked in _divide_into_bins(values, axis, bound_us, _DOT_BINS).values():
        # Half of the dots must fit into the _SPREAD pixels above the line. So the more dots there
        # are, the closer together they are.
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
    steps = (index + 1) // 2
    return steps if index % 2 == 1 else -steps


def _bars(
    values: Sequence[tuple[str, int]], axis: LogAxis, centre: int, subject: str, bound_us: int
) -> Iterator[dict[str, Any]]:
    """Yield a bar for each part of the axis with values; its height shows their number."""
    bins = _divide_into_bins(values, axis, bound_us, _BAR_BINS)
    most_in_one_part = max(len(in_part) for in_part in bins.values())
    for index, in_part in bins.items():
        # Even a bar for one subject among thousands is visible.
        half_height = max(1.0, _SPREAD * len(in_part) / most_in_one_part)
        # The values of a part are sorted: the first is the shortest, the last the longest.
        shortest, longest = (
            duration_text(value, bound_us=bound_us) for _, value in (in_part[0], in_part[-1])
        )
        between = shortest if shortest == longest else f"{shortest} to {longest}"
        yield {
            "mark": "bar",
            "from": axis.value(index / _BAR_BINS),
            "to": axis.value((index + 1) / _BAR_BINS),
            "y": round(centre - half_height, 1),
            "y2": round(centre + half_height, 1),
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
