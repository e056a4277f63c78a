"""Strips: rows of a chart, each of which shows the values of one measure.

For example, the measure `accept` is the time from the moment at which a member knew its new
coordinator until this coordinator served the member. The strip of `accept` has a dot for each
member, at the length of the member's time. The members are the subjects of this measure. Other
measures have partitions or groups as subjects. If there are many subjects, the strip has no dots,
but bars, each of which stands for several subjects.

If the nodes of a run were on several machines, a length can be wrong by the difference between the
clocks of two machines. The largest such difference is called the clocks' error (`bound_us` in the
code). A length below this error is not certain. A grey band from 0 to the error, at the beginning
of a strip, shows this.
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
"""Height of a strip in pixels. The name and the figures are above the dots or bars."""
MAX_DOTS = 60
"""Maximum number of dots in a strip. If there are more subjects, the strip has bars."""
_DOT_BINS = 48
"""Number of parts into which the axis is divided for dots. The dots of one part are stacked."""
_BAR_BINS = 100
"""Number of parts into which the axis is divided for bars. A bar counts the subjects of a part."""
# The next three numbers are distances in pixels from the top of a strip.
_HEADER_Y = 12
"""Distance to the middle of the text, which has the name and the figures."""
_HEADER_HEIGHT = 22
"""Distance to the end of the text's area."""
_CENTRE_Y = 42
"""Distance to the horizontal line on which the dots or bars are."""
_SPREAD = 13
"""Maximum distance of the dots or bars from the strip's line, in pixels, above and below."""
_DOT_STEP = 7
"""Distance in pixels between two stacked dots, if there is room."""
_WIDE = 440
"""Least width in pixels of a chart that has room for the full text of `figures_text`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The values of one measure."""

    name: str
    values: tuple[tuple[str, int], ...]
    """The subjects with their values in microseconds, such as `("consumer-1", 350_000)`, in any
    order."""
    figures: Distribution
    """The distribution of `values`."""
    subject: str
    """The word for a subject, such as "member"."""
    note: str = ""
    """A text on the subjects without a value, such as "2 never again"."""


def distribution_of(lengths: Sequence[int], *, missing: int, bound_us: int = 0) -> Distribution:
    """Return the figures of sorted lengths; `missing` is the number of subjects without a length.

    A percentile is one of the lengths (nearest rank): of ten lengths, the 90th percentile is the
    ninth length.
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
    """Return a percentile by the nearest rank."""
    # -(-a // b) is a / b, rounded up.
    rank_from_1 = -(-len(sorted_lengths) * percent // 100)
    return sorted_lengths[rank_from_1 - 1]


def axis_over(strips: Iterable[Strip]) -> LogAxis:
    """Return an axis that is long enough for all values of the strips and the clocks' error."""
    all_strips = list(strips)
    values = [value for strip in all_strips for _, value in strip.values]
    bound_us = max((strip.figures.bound_us for strip in all_strips), default=0)
    return LogAxis.of(values, bound_us=bound_us)


def figures_text(strip: Strip) -> tuple[str, str]:
    """Return the figures of a strip as a full text, and as a short text for a phone.

    For example, `p50 2 ms, p90 4 ms, max 5 ms; 10 members` and `p50 2 ms, max 5 ms`.
    """
    figures = strip.figures
    if not figures.samples:
        return strip.note or "none", strip.note or "none"
    texts = {
        name: f"{name} {length_text(value, bound_us=figures.bound_us)}"
        for name, value in _named_figures(figures).items()
    }
    subjects = counted(figures.samples, strip.subject)
    if strip.note:
        subjects += f", {strip.note}"
    full = f"{', '.join(texts.values())}; {subjects}"
    short = ", ".join(text for name, text in texts.items() if name != "p90")
    return full, short


def _named_figures(figures: Distribution) -> dict[str, int]:
    """Return the figures that are drawn: `{"p50": 2_000, "p90": 4_000, "max": 5_000}`.

    A percentile for which there are too few values is left out.
    """
    named = {
        "p50": figures.percentile(50),
        "p90": figures.percentile(90),
        "max": figures.maximum,
    }
    return {name: value for name, value in named.items() if value is not None}


def strip_rows(strips: Sequence[Strip], axis: LogAxis, **common: str) -> list[dict[str, Any]]:
    """Return the data for `strip_chart`, in which the strips are one below another.

    A row is one mark of the chart. Its `mark` is the kind:

    - `name`: the text above the strip
    - `band`: the grey area of lengths below the clocks' error
    - `range`: the line from the shortest to the longest value
    - `dot` or `bar`: one subject, or a number of subjects
    - `p50`, `p90`, `max`: a vertical line at this figure

    `from` and `to` are in microseconds, `y` and `y2` in pixels from the top. `says` is the tooltip.
    The arguments `common` are columns that every row gets.
    """
    rows: list[dict[str, Any]] = []
    for index, strip in enumerate(strips):
        top = index * ROW_HEIGHT
        rows += [{**row, **common} for row in _rows_of(strip, axis, top)]
    return rows


def _rows_of(strip: Strip, axis: LogAxis, top: int) -> Iterator[dict[str, Any]]:
    """Yield the marks of one strip, which begins `top` pixels from the top."""
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
    for name, value in _named_figures(figures).items():
        # The median is the most important figure. So its line is 5 pixels longer than a stack of
        # dots at both ends, and the lines of the other figures are 4 pixels shorter.
        half_length = _SPREAD + 5 if name == "p50" else _SPREAD - 4
        text = duration_text(value, bound_us=figures.bound_us)
        yield {
            "mark": name,
            "from": _drawn_at_us(value, figures.bound_us),
            "y": centre - half_length,
            "y2": centre + half_length,
            "says": f"{name} of {strip.name}: {text}",
        }


def _drawn_at_us(value_us: int, bound_us: int) -> int:
    """Return where a value is drawn. A value below the clocks' error is drawn at the error."""
    return bound_us if abs(value_us) < bound_us else value_us


def _dots(
    values: Sequence[tuple[str, int]], axis: LogAxis, centre: int, bound_us: int
) -> Iterator[dict[str, Any]]:
    """Yield a dot for each value.

    Dots in the same part of the axis would cover each other. So they are stacked, alternately above
    and below the line.
    """
    for stacked in _divide_into_bins(values, axis, bound_us, _DOT_BINS).values():
        # Half of the dots must fit into the _SPREAD pixels above the line. So if there are many
        # dots, they are closer together.
        step = min(_DOT_STEP, _SPREAD / max(1, len(stacked) // 2))
        for index, (subject, value) in enumerate(stacked):
            yield {
                "mark": "dot",
                "from": _drawn_at_us(value, bound_us),
                "y": round(centre + _off_centre(index) * step, 1),
                "says": f"{subject}: {duration_text(value, bound_us=bound_us)}",
            }


def _off_centre(index: int) -> int:
    """Return how many steps a dot of a stack is off the line: 0, 1, -1, 2, -2 for dots 0 to 4."""
    steps = (index + 1) // 2
    return steps if index % 2 == 1 else -steps


def _bars(
    values: Sequence[tuple[str, int]], axis: LogAxis, centre: int, subject: str, bound_us: int
) -> Iterator[dict[str, Any]]:
    """Yield a bar for each part of the axis that has values. Its height shows their number."""
    bins = _divide_into_bins(values, axis, bound_us, _BAR_BINS)
    most_in_one_part = max(len(in_part) for in_part in bins.values())
    for index, in_part in bins.items():
        # Each bar is at least 2 pixels high. So even one subject among thousands is visible.
        half_height = max(1.0, _SPREAD * len(in_part) / most_in_one_part)
        # The values of a part are sorted, so the first is the shortest and the last the longest.
        _, shortest_us = in_part[0]
        _, longest_us = in_part[-1]
        shortest = duration_text(shortest_us, bound_us=bound_us)
        longest = duration_text(longest_us, bound_us=bound_us)
        span = shortest if shortest == longest else f"{shortest} to {longest}"
        yield {
            "mark": "bar",
            "from": axis.value(index / _BAR_BINS),
            "to": axis.value((index + 1) / _BAR_BINS),
            "y": round(centre - half_height, 1),
            "y2": round(centre + half_height, 1),
            "says": f"{counted(len(in_part), subject)}: {span}",
        }


def _divide_into_bins(
    values: Sequence[tuple[str, int]], axis: LogAxis, bound_us: int, number: int
) -> dict[int, list[tuple[str, int]]]:
    """Group values by the part of the axis in which they lie.

    The axis has `number` equal parts, counted from 0. Inside a part, values keep their order.
    """
    bins: dict[int, list[tuple[str, int]]] = {}
    for subject, value in values:
        # A value at the end of the axis belongs to the last part.
        index = min(number - 1, int(axis.place(_drawn_at_us(value, bound_us)) * number))
        bins.setdefault(index, []).append((subject, value))
    return bins


def strip_chart(
    data: str, rows: int, axis: LogAxis, fill: str, *, picked: str | None = None
) -> alt.TopLevelMixin:
    """Return the specification of a chart that has room for `rows` strips.

    `data` is the name of the chart's data. If the reader picks what the chart shows, `picked` is
    the name of a parameter and also of a column in the data. A row is drawn if the column has the
    value of the parameter. If `picked` is None, all rows are drawn.
    """
    y_scale = alt.Scale(domain=[0, rows * ROW_HEIGHT], reverse=True, nice=False, zero=False)
    y = alt.Y("y:Q", scale=y_scale, axis=None)
    x = axis.x("from")
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData(data))
    if picked is not None:
        base = base.transform_filter(f"datum[{picked!r}] == {picked}")

    def only(*marks: str) -> alt.Chart:
        """Return the rows of the data whose `mark` is one of these words."""
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
