"""Vega specifications and data of charts, as the page embeds them.

Our charts are written in Vega-Lite, a concise language. The library in the page draws Vega, a more
verbose language. So the charts are compiled here, in Python, and the page does not need the
compiler.

This module also has the default configuration of all charts, such as fonts and colours. The
configuration of a single chart takes precedence over the default.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import vl_convert as vlc

from pipeline.report.charts.chart import INK, LINE, MUTED, SERIES, Chart

Spec = dict[str, Any]  # Any: Vega's JSON

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
"""Fonts of the system, as in the page's style, because the page loads no font."""
NARROW_BELOW = 560
"""A page that is narrower than this number of pixels is laid out for a phone."""
LABELS_WIDE, LABELS_NARROW = 188, 92
"""Width in pixels of the labels to the left of a lane, on a wide page and on a phone. All lanes of
a page have labels of the same width. So a moment has the same position in each lane.
"""


def _for_width(wide: int, narrow: int) -> Spec:
    """Return a Vega expression with the value `wide` or, on a phone, `narrow`.

    Vega evaluates an expression again only when a variable in the expression changes, and
    `containerSize()` is no variable. So the expression also contains the variable `width`, in a
    comparison that is always true.
    """
    return {"expr": f"width >= 0 && containerSize()[0] < {NARROW_BELOW} ? {narrow} : {wide}"}


_LABEL_WIDTH = _for_width(LABELS_WIDE, LABELS_NARROW)
# A label ends 12 pixels before the lane; on a phone, where room is scarce, 8 pixels before it.
_LABEL_LIMIT = _for_width(LABELS_WIDE - 12, LABELS_NARROW - 8)

_CONFIG: Spec = {
    # Screen readers shall read the description of the chart and its table, but not each mark.
    "aria": False,
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "mark": {"color": SERIES[0]},
    "text": {"color": INK, "fontSize": 12},
    "rule": {"color": INK},
    "range": {"category": list(SERIES)},
    "axis": {
        "domainColor": LINE,
        "gridColor": LINE,
        "gridOpacity": 0.6,
        "tickColor": LINE,
        "labelColor": INK,
        "labelFontSize": 12,
        "labelPadding": 6,
        "titleColor": MUTED,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "axisX": {
        "tickCount": {"expr": "max(2, floor(width / 90))"},
        "labelOverlap": True,
        "labelSeparation": 8,
    },
    "axisY": {"grid": False, "ticks": False, "domain": False},
    "legend": {
        "orient": "top",
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": _for_width(320, 200),
        "titleColor": MUTED,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "symbolStrokeColor": LINE,
        "columns": _for_width(6, 1),
    },
    "header": {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12},
    "title": {"color": INK, "fontSize": 13, "anchor": "start", "subtitleColor": MUTED},
}
"""Default configuration of every chart."""
_LANE_CONFIG: Spec = {
    "axisY": {"minExtent": _LABEL_WIDTH, "maxExtent": _LABEL_WIDTH, "labelLimit": _LABEL_LIMIT},
    "axisX": {"format": "~f"},
}
"""The default configuration of lanes (charts on the time axis), in addition to _CONFIG. The labels
have the same width in all lanes, which aligns the time axes.
"""

_VALIDATE = False
"""True if charts are validated against Vega-Lite's schema; tests set it.

A validation error names the wrong part of a chart, while an error of the compiler does not. But
validation would take half the time of a report, so it is off by default.
"""


def payload(chart: Chart) -> Spec:
    """Return what `report.js` needs for a chart: its Vega specification, and its data."""
    return {
        "spec": compiled(chart),
        "data": {name: _names_and_values(rows) for name, rows in chart.data.items()},
    }


def compiled(chart: Chart) -> Spec:
    """Return a chart's Vega specification, without its data.

    Raises: ValueError with the chart's id if the chart is wrong.
    """
    spec = chart.spec.to_dict(validate=_VALIDATE)
    default_config = _merged(_CONFIG, _LANE_CONFIG) if chart.on_time_axis else _CONFIG
    spec["config"] = _merged(default_config, spec.get("config", {}))
    # Altair sets these two sizes for notebooks. Here the page decides on the size.
    spec["config"]["view"].pop("continuousWidth", None)
    spec["config"]["view"].pop("continuousHeight", None)
    spec.setdefault("autosize", {"type": "fit-x", "contains": "padding"})
    spec.setdefault("padding", 0)

    try:
        vega: Spec = vlc.vegalite_to_vega(spec)
    except ValueError as error:
        raise ValueError(f"the chart {chart.id} cannot be compiled: {error}") from error
    return vega


def embedded(value: object) -> str:
    """Return JSON that is safe inside a script element of an HTML page."""
    # "<" could begin the end tag of the element. Some JavaScript parsers take U+2028 and U+2029 for
    # line breaks, which must not be in a string.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _names_and_values(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Return rows in a form in which each name appears only once.

    `[{"a": 1, "b": 2}, {"a": 3}]` becomes `{"columns": ["a", "b"], "rows": [[1, 2], [3, None]]}`.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": names, "rows": [[row.get(name) for name in names] for row in rows]}


def _merged(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> Spec:
    """Return two nested mappings merged; values of `overrides` replace those of `defaults`.

    For example, `{"axis": {"grid": True, "ticks": True}}` and `{"axis": {"grid": False}}` become
    `{"axis": {"grid": False, "ticks": True}}`.
    """
    merged: Spec = dict(defaults)
    for key, value in overrides.items():
        default = merged.get(key)
        if isinstance(default, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(default, value)
        else:
            merged[key] = value
    return merged
