"""What the lanes of a report are drawn with: rows, bars, labels, and bands of faults behind them.

A lane is a chart along the time axis of the page, with a row for each broker, for example. Each
lane has a module of its own, which makes the marks of the lane (bars, points and labels) with
`Marks`, and then the whole chart with `time_lane`. This function adds a coloured band for each
fault.

Python makes the specification of a chart, with the library Altair. The library Vega draws it in the
browser, and draws it again whenever the reader zooms. Some things then depend on the zoom: the
label of a bar, for example, must stay within the visible part of the bar. So the specification
contains expressions, which Vega evaluates at each zoom. In these expressions, FROM_S and TO_S are
the ends of the visible part of the axis.

An object in the data of a lane stands for one mark. It has these keys:

- `r`: name of the row
- `a`, `b`: start and end in seconds
- `d`: length of a bar, as text
- `l`, `s`: the label, long and short
- names that begin with `_`: fields that Vega computes
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.report.charts.chart import (
    FROM_S,
    INK,
    MUTED,
    PAPER,
    TO_S,
    WARN,
    Cell,
    Chart,
    Pick,
    TextTable,
    axis_seconds,
    soft,
    time_params,
    time_x,
)
from pipeline.report.charts.chart_specs import LABELS_NARROW, LABELS_WIDE, NARROW_BELOW
from pipeline.report.lanes.labels import Tip, tooltip_of
from pipeline.report.report_input import ReportInput
from pipeline.summary.figures import duration_text

Datum = dict[str, Cell]
"""One object in the data of a chart."""
MarkProperty = str | float | bool | Sequence[int] | None
"""A property of a mark for Altair, such as its colour."""
MarkProperties = dict[str, Any]
"""Properties of a mark by name. Any, because Altair's parameters have different types."""

FAULT_BANDS = "faults"
"""Name of the data set with the times of the faults. Every lane has it."""
MAX_FAULTS = 200
"""Maximum number of bands. If a run has more faults, only the first faults have a band."""
_BANDS_AT_ONCE = 6
"""Maximum number of bands with the usual opacity. If there are more, all bands and their edges are
fainter.
"""
ROW_PX = 22
"""Usual height of a row in pixels."""
NARROW = f"containerSize()[0] < {NARROW_BELOW}"
"""A Vega expression that is true on a phone."""
_LEGEND_COLUMNS = 6
"""Maximum number of columns of a legend."""
_LEGEND_SYMBOL_PX = 36
"""Width in pixels of a legend's symbol with its margins."""
_LEGEND_CHARACTER_PX = 7
"""Width in pixels of a character in a legend."""
_CHARACTER_PX = 6.3
"""Average width of a character in a label, in pixels."""
_PADDING = {"left": 0, "top": 0, "right": 14, "bottom": 0}
"""Space around a lane in pixels. The space on the right is for the last label of the axis, half of
which is beyond the end of the axis.
"""
_ELLIPSIS = "\\u2026"
"""The character U+2026, as an escape inside a Vega expression."""
_INVISIBLE = "\u200b"
"""A character without width. In the name of a row (`row_name`), it makes the name different from
the names of other rows, without a visible difference.
"""
_INVISIBLE_ESCAPED = "\\u200b"
"""The same character, as an escape inside a Vega expression."""


def row_name(name: str, slot: int = 0, label: str = "") -> str:
    """Return the name of row number `slot` among several rows with the same subject.

    For example, the partition `orders-0` has two rows, because it had two owners at the same time.
    The name of the first row (slot 0) is `orders-0`. Vega needs another name for the second row
    (slot 1): it is `orders-0`, an invisible character, and `label`. Beside the second row, the page
    shows only `label`.
    """
    return name + _INVISIBLE * slot + label


def time_lane(
    run: ReportInput,
    *,
    lane_id: str,
    title: str,
    about: str,
    layers: Sequence[alt.Chart],
    data: Mapping[str, Sequence[Datum]],
    height: int | alt.Step,
    more: str = "",
    picks: Sequence[Pick] = (),
    table: TextTable | None = None,
) -> Chart:
    """Return a lane: `layers` over the bands of the faults, on the shared time axis.

    - `layers`: the marks. They refer to data sets by the keys of `data`.
    - `height`: height of the chart in pixels.
    - `picks`: lists above the lane, from which the reader chooses values of Vega's parameters.
    """
    params = [alt.param(name=pick.param, value=pick.options[0]) for pick in picks]
    bands = fault_bands(run)
    # Many bands overlap, and would hide what is behind them. So with 12 bands, for example, each
    # band has only half of the usual opacity.
    faint = min(1.0, _BANDS_AT_ONCE / max(1, len(bands)))
    # All properties are arguments of this one call, because each method of a layered chart copies
    # its layers, which is slow.
    spec = alt.layer(
        *_fault_bands(bands, faint),
        *layers,
        *_fault_edges(faint),
        width="container",
        height=height,
        padding=_PADDING,
        params=[parameter.param for parameter in (*time_params(), *params)],
    )
    return Chart(
        id=lane_id,
        title=title,
        about=about,
        more=more,
        spec=spec,
        data={FAULT_BANDS: bands, **data},
        on_time_axis=True,
        picks=tuple(picks),
        table=table,
    )


def fault_bands(run: ReportInput) -> list[Datum]:
    """Return the times of the first MAX_FAULTS faults, from injection to healing.

    A band has the keys `a` and `b`, and these:

    - `n`: the fault's id
    - `h`: what the fault hit, in words
    - `x`: 1 for an accident, in which a machine was lost or disturbed without a fault of the plan;
      the key is missing for faults of the plan
    """
    injected = [fault for fault in run.facts.faults if fault.injected_at_us is not None]
    bands: list[Datum] = []
    # The `or 0` only satisfies the type checker: all these faults have been injected.
    for fault in sorted(injected, key=lambda fault: fault.injected_at_us or 0)[:MAX_FAULTS]:
        end_us = fault.injected_at_us if fault.momentary else fault.healed_at_us
        band: Datum = {
            "a": axis_seconds(fault.injected_at_us),
            "b": axis_seconds(run.end_us if end_us is None else end_us),
            "n": fault.fault_id,
            "h": fault.hit,
        }
        if fault.is_by_accident:
            band["x"] = 1
        bands.append(band)
    return bands


def _fault_bands(bands: Sequence[Datum], faint: float) -> Iterator[alt.Chart]:
    """Yield the bands of planned faults, and the bands of accidents, which are grey.

    `faint` is the fraction of the usual opacity that the bands of planned faults get.
    """
    has_accidents = any("x" in band for band in bands)
    if has_accidents:
        yield _bands("datum.x", fill=MUTED, opacity=0.2)
    yield _bands("!datum.x" if has_accidents else None, fill=WARN, opacity=0.09 * faint)


def _bands(where: str | None, *, fill: str, opacity: float) -> alt.Chart:
    """Return the bands of the faults for which the Vega expression `where` is true."""
    source = rows_of(FAULT_BANDS, where)
    band: alt.Chart = source.mark_rect(clip=True, fill=fill, opacity=opacity).encode(
        x=time_of("a:Q"), x2="b:Q"
    )
    return band


def _fault_edges(faint: float) -> tuple[alt.Chart, ...]:
    """Return lines at each fault's injection and healing.

    The lines are drawn over the bars, because the bars hide the bands.
    """
    source = alt.Chart(alt.NamedData(FAULT_BANDS))
    properties: MarkProperties = {
        "clip": True,
        "color": INK,
        "strokeWidth": 1,
        # Lines cover less than bands do, so they need not become as faint. The square root of a
        # number below 1 is larger than the number: 0.5 for a quarter.
        "opacity": faint**0.5,
    }
    return (
        source.mark_rule(strokeDash=[2, 2], **properties).encode(x=time_of("a:Q")),
        source.mark_rule(strokeDash=[1, 4], **properties).encode(x=time_of("b:Q")),
    )


def time_of(field_name: str) -> alt.X:
    """Return the x encoding of a lane: the shared time axis, above the lane, in seconds."""
    axis = alt.Axis(
        orient="top",
        grid=True,
        labelFlush=True,
        labelExpr="datum.label + ' s'",
        title=None,
    )
    return time_x(field_name).axis(axis)


def rows_y(
    rows: Sequence[str] | None = None, *, order: str = "o", label_offset: int = 0, without: str = ""
) -> alt.Y:
    """Return the y encoding of a lane.

    - `rows`: names of the rows from top to bottom. With None, the lane has the rows that occur in
      the data, sorted by the field `order`.
    - `label_offset`: pixels from the middle of a row down to its label.
    - `without`: a prefix that the labels leave out.
    """
    axis = alt.Axis(title=None, labelExpr=_row_label(without), labelOffset=label_offset, grid=False)
    if rows is None:
        return alt.Y("r:N", sort=alt.EncodingSortField(field=order, op="min"), axis=axis)
    return alt.Y("r:N", scale=alt.Scale(domain=list(rows), paddingInner=0.12), sort=None, axis=axis)


def named_without(name: str, prefix: str) -> str:
    """Return a Vega expression for the text `name`, with `prefix` removed from its beginning."""
    if not prefix:
        return name
    quoted = json.dumps(prefix)
    return f"(indexof({name}, {quoted}) == 0 ? slice({name}, {len(prefix)}) : {name})"


def _row_label(without: str) -> str:
    """Return the Vega expression for the label of a row, without the prefix `without`.

    A long name is shown without its middle: `consume…-the-warehouse-12`. The beginning tells what
    the name stands for, and the end distinguishes it from other names. A phone shows only the end.
    For a row with a slot above 0, the label is the `label` of `row_name`.
    """
    name = named_without("datum.label", without)
    short = (
        f"{NARROW} ? '{_ELLIPSIS}' + slice(datum.label, -10) : "
        f"slice({name}, 0, 7) + '{_ELLIPSIS}' + slice(datum.label, -17)"
    )
    return (
        f"indexof(datum.label, '{_INVISIBLE_ESCAPED}') >= 0 ? "
        f"slice(datum.label, lastindexof(datum.label, '{_INVISIBLE_ESCAPED}') + 1) : "
        f"length({name}) <= ({NARROW} ? 12 : 25) ? {name} : {short}"
    )


@dataclass(frozen=True, slots=True)
class Marks:
    """Makes marks (bars, points, labels) from one of the data sets of a lane."""

    name: str
    """The name of the data set, such as "tenures"."""
    y: alt.Y
    tips: Sequence[Tip]
    """The lines of the tooltip."""
    where: str | None = None
    """A Vega expression about an object of the data. Only objects for which the expression is true
    are drawn. With None, all objects are drawn."""

    def bars(self, fill: str | alt.Fill = PAPER, **mark: MarkProperty) -> alt.Chart:
        """Return bars from `a` to `b`; `fill` is one fill for all bars, or an encoding."""
        properties = self._properties(stroke=INK, strokeWidth=0.7, cornerRadius=1.5) | mark
        if isinstance(fill, str):
            properties["fill"] = fill
        encoded = {} if isinstance(fill, str) else {"fill": fill}
        chart = rows_of(self.name, self.where).mark_bar(**properties)
        drawn: alt.Chart = chart.encode(x=time_of("a:Q"), x2="b:Q", y=self.y, **encoded)
        return drawn

    def moments(self, **mark: MarkProperty) -> alt.Chart:
        """Return a mark at `a` of each row."""
        properties = self._properties(filled=True, fill=INK, size=60, opacity=1) | mark
        chart = rows_of(self.name, self.where).mark_point(**properties)
        drawn: alt.Chart = chart.encode(x=time_of("a:Q"), y=self.y)
        return drawn

    def labels(
        self,
        *,
        keep_end: bool = False,
        reserve: str = "0",
        end: str = "datum.b",
        long: str = "datum.l",
        short: str = "datum.s",
        **mark: MarkProperty,
    ) -> tuple[alt.Chart, ...]:
        """Return the labels inside the bars, which begin where the visible part of a bar begins.

        A label is the text `long` if the bar has room for it, otherwise the text `short`. If even
        `short` does not fit, its end is cut off; with `keep_end`, its beginning is cut off instead.
        `end` is the end of the bar in seconds. `reserve` is the number of pixels at the end of the
        bar that the label leaves free. `long`, `short`, `end` and `reserve` are Vega expressions,
        in which `datum` is the bar.
        """
        # `_w` is the number of pixels that are free for the label, `_t` the text that is shown.
        long_fits = f"length({long}) * {_CHARACTER_PX} <= datum._w"
        short_fits = f"length({short}) * {_CHARACTER_PX} <= datum._w"
        characters = f"max(1, floor(datum._w / {_CHARACTER_PX}) - 1)"
        if keep_end:
            cut = f"'{_ELLIPSIS}' + slice({short}, -{characters})"
        else:
            cut = f"slice({short}, 0, {characters}) + '{_ELLIPSIS}'"
        shown = (
            _visible(rows_of(self.name, self.where), reserve, end)
            # A bar with room for only four characters has no label, because so few say nothing.
            .transform_filter(f"datum._w > {4 * _CHARACTER_PX}")
            .transform_calculate(_t=f"{long_fits} ? {long} : {short_fits} ? {short} : {cut}")
        )
        return _text(shown, "_x", self.y, self._properties(align="left", dx=4) | mark)

    def end_labels(
        self, *, room: str = "datum._w / 2", **mark: MarkProperty
    ) -> tuple[alt.Chart, ...]:
        """Return labels at the visible end of bars.

        A label is the long text `l` if the bar has room for it, otherwise the short text `s`. If
        even `s` does not fit, the bar has no label. `room` is a Vega expression for the number of
        pixels that the label can take.
        """
        shown = (
            _visible(rows_of(self.name, self.where), "0", "datum.b")
            .transform_calculate(
                _t=f"length(datum.l) * {_CHARACTER_PX} <= {room} ? datum.l : "
                f"length(datum.s) * {_CHARACTER_PX} <= {room} ? datum.s : ''"
            )
            .transform_filter("datum._t != ''")
        )
        return _text(shown, "_e", self.y, self._properties(align="right", dx=-4) | mark)

    def _properties(self, **mark: MarkProperty) -> MarkProperties:
        """Return the properties that all marks have, and the properties in `mark`."""
        return {"tooltip": tooltip_of(self.tips), "clip": True, **mark}


def picked(param: str, field_name: str) -> str:
    """Return the Vega condition that a field of a row has the picked value."""
    return f"datum.{field_name} == {param}"


def rows_of(name: str, where: str | None) -> alt.Chart:
    """Return a chart of the data set `name`, or of the objects in it for which `where` is true."""
    chart = alt.Chart(alt.NamedData(name))
    return chart if where is None else chart.transform_filter(where)


def _visible(chart: alt.Chart, reserve: str, end: str) -> alt.Chart:
    """Return the bars in the visible part of the time axis, with three more fields.

    `_x` and `_e` are the beginning and the end of the bar's visible part in seconds. `_w` is the
    width for its label in pixels, without margins and without `reserve`.
    """
    visible_bars: alt.Chart = (
        chart.transform_filter(f"{end} > {FROM_S} && datum.a < {TO_S}")
        .transform_calculate(_x=f"max(datum.a, {FROM_S})", _e=f"min({end}, {TO_S})")
        .transform_calculate(
            _w=f"(datum._e - datum._x) / ({TO_S} - {FROM_S}) * width - 8 - ({reserve})"
        )
    )
    return visible_bars


def _text(
    chart: alt.Chart, time_field: str, y: alt.Y, mark: MarkProperties
) -> tuple[alt.Chart, ...]:
    """Return the text twice: first its rim in the background's colour, then the text on top of it.

    The rim makes the text legible on patterns. `time_field` is the field with the time at which the
    text begins or ends.
    """
    properties: MarkProperties = {
        "baseline": "middle",
        "clip": True,
        "fontSize": 11,
        "fill": INK,
        **mark,
    }
    rim: MarkProperties = {
        **properties,
        "stroke": PAPER,
        "strokeWidth": 3,
        "strokeJoin": "round",
        "fill": PAPER,
    }
    encoded = {"x": time_of(f"{time_field}:Q"), "y": y, "text": alt.Text("_t:N")}
    return chart.mark_text(**rim).encode(**encoded), chart.mark_text(**properties).encode(**encoded)


def kind_fill(
    field_name: str, fills: Mapping[str, str] | Mapping[int, str], title: str | None = None
) -> alt.Fill:
    """Return fills by the values of a field, with a legend under `title`.

    The fills are made paler (`soft`), because labels are drawn on them.
    """
    return alt.Fill(
        f"{field_name}:N",
        scale=alt.Scale(domain=list(fills), range=[soft(fill) for fill in fills.values()]),
        legend=alt.Legend(
            title=title,
            symbolType="square",
            symbolSize=140,
            symbolStrokeColor=INK,
            columns=legend_columns(fills),
        ),
    )


def legend_columns(names: Iterable[str | int]) -> alt.ExprRef:
    """Return the number of columns of a legend: as many as fit into the width of the chart."""
    widest_px = _LEGEND_SYMBOL_PX + _LEGEND_CHARACTER_PX * max(len(str(name)) for name in names)
    # The room is computed from the size of the container. The variable `width` would be wrong,
    # because it shrinks while Vega arranges the chart: the legend would get one row more, and be
    # partly outside of the chart. But Vega evaluates an expression again only when a variable in it
    # changes. So the expression contains `width`, in a comparison that is always true.
    room = f"containerSize()[0] - ({NARROW} ? {LABELS_NARROW} : {LABELS_WIDE})"
    columns = f"floor((width >= 0 ? {room} : 0) / {widest_px})"
    return alt.ExprRef(f"max(1, min({_LEGEND_COLUMNS}, {columns}))")


def span(start_us: int, end_us: int, **more: Cell) -> Datum:
    """Return the data of a bar: its ends in seconds, its length as text, and `more`."""
    return {
        "a": axis_seconds(start_us),
        "b": axis_seconds(end_us),
        "d": duration_text(end_us - start_us),
        **more,
    }
