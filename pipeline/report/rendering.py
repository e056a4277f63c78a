"""Templates to markup: words and markup stand in `templates`, the facts come from Python.

Autoescape is on, so that what comes from a run is escaped where it is printed. A template has a
macro for each thing that is said; `words` is what all of them may call.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from pipeline.report.charts.chart import Beside, Cell, Chart, Paragraph, TextTable, axis_seconds
from pipeline.report.sentences.fault_sentences import between_servers
from pipeline.summary.figures import MARK, duration_text
from pipeline.summary.outcomes import in_number_order, listed
from pipeline.summary.story import as_title, counted, moment_text, office_name

_NUMBER_AND_UNIT = re.compile(r"(\d) (s|ms|us)\b")
_SPAN = re.compile(r"\d\N{NO-BREAK SPACE}s to (run end|[\d.]+)")
_CODE = re.compile(r"`([^`<]+)`")
_BLOCK = re.compile(r"\s*<(p|ul|ol|dl|div|pre|details|h[3-6]|table|figure|section|blockquote)\b")
FAULTS, COORDINATORS = "lane-faults", "lane-coordinators"
OWNERSHIP, AVAILABILITY, REBALANCES = "lane-ownership", "lane-availability", "lane-rebalances"
"""The lanes that sentences lead to."""


def said(template: str, macro: str, *facts: object, **more: object) -> Markup:
    """Return what a macro says of the facts: one line, in which no number is without its unit."""
    line = " ".join(as_it_is(template, macro, *facts, **more).split())
    return with_code(Markup(unbroken(line)))


def as_it_is(template: str, macro: str, *facts: object, **more: object) -> Markup:
    """Return what a macro says, with the breaks of its lines: commands and files."""
    text: Markup = getattr(_module(template), macro)(*facts, **more)
    return text.strip()


def laid_out(template: str, **values: object) -> str:
    """Return a whole template with `values` in it."""
    return _environment().get_template(f"{template}.j2").render(**values).strip()


def unbroken(text: str) -> str:
    """Return text in which no line is broken between a number and its unit."""
    return _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


def with_code(text: str) -> Markup:
    """Return text in which what stands between backticks looks like code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def with_breaks(name: str) -> Markup:
    """Return a name in which a line may break behind each underscore."""
    return Markup("_<wbr>").join(escape(name).split("_"))


def span_together(text: str) -> str:
    """Return a span of time (`1.000 s to 2.500 s`) that stays on one line; other text may break."""
    return _SPAN.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), unbroken(text))


def sentence(text: str) -> str:
    """Return a line of the story as a sentence: a capital in front, a full stop behind."""
    names = text.split(" ", 1)[0]
    begins = text if not names.islower() or "-" in names else as_title(text)
    return begins if begins.endswith(".") else f"{begins}."


def moment_link(
    from_us: int, to_us: int | None = None, *, lane: str | None = None, text: str | None = None
) -> Markup:
    """Return a link that shows a moment, or a span, in the lanes; its text is the moment.

    `<a href="#<lane>" data-from=".." data-to="..">`: the page zooms there, marks it in every chart
    of the time axis and scrolls to `lane`, the id of a chart (None: it stays where it is).
    """
    to = from_us if to_us is None else to_us
    shown = text or (
        moment_text(from_us) if to_us is None else f"{moment_text(from_us)} to {moment_text(to_us)}"
    )
    return Markup('<a href="#{}" data-from="{}" data-to="{}">{}</a>').format(
        lane or "time", axis_seconds(from_us), axis_seconds(to), span_together(shown)
    )


def at_moment(time_us: int, lane: str = FAULTS) -> Markup:
    """Return `at 11.250 s`, leading to that moment of a lane."""
    return Markup("at ") + moment_link(time_us, lane=lane)


def between(from_us: int, to_us: int | None, end_us: int, lane: str = FAULTS) -> Markup:
    """Return `from 64.081 s to 93.212 s`, leading there; `to_us` None: the run's end."""
    until = "the end of the run" if to_us is None else moment_text(to_us)
    text = f"from {moment_text(from_us)} to {until}"
    return moment_link(from_us, end_us if to_us is None else to_us, lane=lane, text=text)


def and_list(parts: Sequence[str | Markup]) -> Markup:
    """Return `a, b and c`."""
    shown = [escape(part) for part in parts]
    if len(shown) < 2:
        return Markup("").join(shown)
    return Markup(", ").join(shown[:-1]) + Markup(" and ") + shown[-1]


def ordered(names: Iterable[str]) -> str:
    """Return names for people, in the order of their numbers."""
    return listed(in_number_order(set(names)))


def text_of(name: str, folder: str = "assets") -> str:
    """Return the text of a file of the report's own."""
    return (files("pipeline.report") / folder / name).read_text(encoding="utf-8")


def cell_text(value: Cell) -> str:
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


@lru_cache(maxsize=32)
def _module(template: str) -> Any:  # noqa: ANN401 - its attributes are the template's macros
    return _environment().get_template(f"{template}.j2").module


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: text_of(name, "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = {"chart": Chart, "table": TextTable, "paragraph": Paragraph, "beside": Beside}
    for name, part in parts.items():
        environment.tests[name] = lambda value, part=part: isinstance(value, part)
    environment.filters |= {
        "block": _as_block,
        "breaks": with_breaks,
        "cell": cell_text,
        "code": with_code,
        "sentence": sentence,
    }
    environment.globals |= {
        "and_list": and_list,
        "as_title": as_title,
        "at": at_moment,
        "between": between,
        "between_servers": between_servers,
        "counted": counted,
        "duration": duration_text,
        "mark": MARK,
        "in_number_order": in_number_order,
        "link": moment_link,
        "listed": listed,
        "moment": moment_text,
        "office": office_name,
        "ordered": ordered,
        "quote": quote,
        "together": span_together,
    }
    return environment
