"""Makes one HTML page of sections.

The page works offline, because it contains everything that it needs: the style, the scripts, and
the library Vega, which draws the charts. For each chart, it contains a specification for Vega, and
the data of the chart.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from pipeline.report.charts.chart import Beside, Chart, Part, Section
from pipeline.report.charts.chart_specs import embedded, payload
from pipeline.report.charts.javascript import vega_javascript
from pipeline.report.rendering import render_template, text_of
from pipeline.report.sections.headline import Headline

_SCRIPTS = ("report.js", "time_axis.js", "navigation.js")
"""The files of the page's own script. Joined in this order, they are one JavaScript module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMark:
    """A fault on the overview of the time axis. Times are in seconds."""

    label: str
    from_s: float
    to_s: float | None
    """The end of the fault; None for a momentary fault, such as an election."""
    is_by_accident: bool = False
    """True if a machine was lost or silent, although the plan had no such fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: its headline (the first screen) and its sections."""

    title: str
    headline: Headline
    sections: Sequence[Section]
    end_s: float = 0.0
    """The length of the time axis in seconds; 0 if the page has no time axis."""
    marks: Sequence[TimeMark] = ()


def render(page: Page) -> str:
    """Return the page's HTML.

    Raises: ValueError if a chart is wrong, or if two charts or sections share an id.
    """
    parts = [part for section in page.sections for part in section.parts]
    single_parts = [single for part in parts for single in _single_parts(part)]
    charts = [part for part in single_parts if isinstance(part, Chart)]
    ids = [chart.id for chart in charts] + [section.id for section in page.sections]
    if len(set(ids)) != len(ids):
        repeated = sorted({name for name in ids if ids.count(name) > 1})
        raise ValueError(f"ids must be unique in a page: {', '.join(repeated)}")
    return render_template(
        "page",
        page=page,
        style=Markup(text_of("report.css")),
        script=Markup("\n".join(text_of(name) for name in _SCRIPTS)),
        vega=Markup(vega_javascript()) if charts else "",
        charts=charts,
        has_time=any(chart.on_time_axis for chart in charts),
        picks=lambda chart: json.dumps([asdict(pick) for pick in chart.picks]),
        payload=lambda chart: Markup(embedded(payload(chart))),
        time=Markup(embedded(_time_axis(page))),
    )


def _single_parts(part: Part) -> tuple[Part, ...]:
    """Return the parts in a Beside. Any other part is returned alone."""
    return part.parts if isinstance(part, Beside) else (part,)


def _time_axis(page: Page) -> dict[str, Any]:
    """Return what the script needs for the time axis: its end, and the faults on its overview."""
    return {"end": page.end_s, "faults": [_time_mark(mark) for mark in page.marks]}


def _time_mark(mark: TimeMark) -> dict[str, Any]:
    """Return a fault in the form in which the script reads it."""
    data: dict[str, Any] = {"from": mark.from_s, "to": mark.to_s, "label": mark.label}
    if mark.is_by_accident:
        data["accident"] = True
    return data
