"""Sections to one HTML page that needs nothing else: style, script, Vega and data are in it."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.report.charts.chart import Beside, Cell, Chart, Paragraph, Part, Section, TextTable
from pipeline.report.charts.chart_specs import embedded, payload
from pipeline.report.charts.javascript import vega_javascript
from pipeline.report.sections.headline import Headline

_SCRIPTS = ("report.js", "time_axis.js", "navigation.js")
"""The page's own scripts, one module in this order."""
_BLOCK = re.compile(r"\s*<(p|ul|ol|dl|div|pre|details|h[3-6]|table|figure|section|blockquote)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMark:
    """A fault on the overview of the time axis: seconds; `to_s` None: momentary or never undone."""

    label: str
    from_s: float
    to_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page with its headline and sections.

    Units: `end_s` is the length of the time axis in seconds, 0 where the page has none.
    """

    title: str
    headline: Headline
    sections: Sequence[Section]
    end_s: float = 0.0
    marks: Sequence[TimeMark] = ()


def render(page: Page) -> str:
    """Return the page's HTML.

    Raises: ValueError if a chart is wrong or two share an id.
    """
    parts = [part for section in page.sections for part in section.parts]
    single = [each for part in parts for each in _singly(part)]
    charts = [part for part in single if isinstance(part, Chart)]
    ids = [chart.id for chart in charts] + [section.id for section in page.sections]
    if len(set(ids)) != len(ids):
        twice = sorted({each for each in ids if ids.count(each) > 1})
        raise ValueError(f"ids must be unique in a page: {', '.join(twice)}")
    return _template("report.html.j2").render(
        page=page,
        style=Markup(asset("report.css")),
        script=Markup("\n".join(asset(name) for name in _SCRIPTS)),
        vega=Markup(vega_javascript()) if charts else "",
        charts=charts,
        has_time=any(chart.on_time_axis for chart in charts),
        picks=lambda chart: json.dumps([asdict(pick) for pick in chart.picks]),
        payload=lambda chart: Markup(embedded(payload(chart))),
        time=Markup(embedded(_time(page))),
    )


def markup(template: str, **values: object) -> str:
    """Return a fragment of HTML from a template of `assets`; `values` are escaped in it."""
    return _template(template).render(**values).strip()


def asset(name: str) -> str:
    """Return the text of a file of `assets`."""
    return (files("pipeline.report") / "assets" / name).read_text(encoding="utf-8")


def _singly(part: Part) -> tuple[Part, ...]:
    return part.parts if isinstance(part, Beside) else (part,)


def _time(page: Page) -> dict[str, Any]:
    marks = [{"from": m.from_s, "to": m.to_s, "label": m.label} for m in page.marks]
    return {"end": page.end_s, "faults": marks}


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["chart"] = lambda part: isinstance(part, Chart)
    environment.tests["table"] = lambda part: isinstance(part, TextTable)
    environment.tests["paragraph"] = lambda part: isinstance(part, Paragraph)
    environment.filters["cell"] = _cell
    environment.filters["block"] = _as_block
    return environment


def _cell(value: Cell) -> str:
    """Return a cell's text; absence is a dash, so that no cell looks forgotten."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def _as_block(html: str) -> Markup:
    """Return trusted markup as a block: bare text becomes a paragraph."""
    return Markup(html if _BLOCK.match(html) else f"<p>{html}</p>")
