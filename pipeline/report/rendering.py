"""Renders the Jinja2 templates, which hold the sentences of the page; the facts come from Python.

A template has one macro for each sentence or block of the page; a block is a paragraph or a list,
for example. `render_line("words", "plain", text)` renders the macro `plain` of the template
`words.j2`, whose macros all other templates can use. Jinja2 escapes each text from a run that a
template prints, because `autoescape` is on.
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
from pipeline.summary.story import as_title, coordinator_with_epoch, counted, moment_text

_NUMBER_AND_UNIT = re.compile(r"(\d) (s|ms|us)\b")
"""A number and its unit. A line must not break at the space between them."""
_SPAN = re.compile(r"\d\N{NO-BREAK SPACE}s to (run end|[\d.]+)")
"""The part of `1.000 s to 2.500 s` from the first unit to the second number, with a space that does
not break before the unit.
"""
_CODE = re.compile(r"`([^`<]+)`")
"""A part between backticks."""
_BLOCK = re.compile(r"\s*<(p|ul|ol|dl|div|pre|details|h[3-6]|table|figure|section|blockquote)\b")
"""The beginning of markup that is a block already, so that it needs no paragraph around it."""
FAULTS, COORDINATORS = "lane-faults", "lane-coordinators"
OWNERSHIP, AVAILABILITY, REBALANCES = "lane-ownership", "lane-availability", "lane-rebalances"
"""Ids of the lanes to which links in sentences lead."""


def render_line(template: str, macro: str, *facts: object, **more: object) -> Markup:
    """Return a macro's text about the facts as one line, without breaks between numbers and units.

    `template` is the name of a file without `.j2`, and `macro` the name of a macro in it; `facts`
    and `more` are the macro's arguments.
    """
    line = " ".join(render_block(template, macro, *facts, **more).split())
    return with_code(Markup(unbroken(line)))


def render_block(template: str, macro: str, *facts: object, **more: object) -> Markup:
    """Return a macro's text with its line breaks, which matter in commands and files."""
    text: Markup = getattr(_module(template), macro)(*facts, **more)
    return text.strip()


def render_template(template: str, **values: object) -> str:
    """Return a whole template, filled with `values`."""
    return _environment().get_template(f"{template}.j2").render(**values).strip()


def unbroken(text: str) -> str:
    """Return text in which no line is broken between a number and its unit."""
    return _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


def with_code(text: str) -> Markup:
    """Return text in which the parts between backticks are marked as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def with_breaks(name: str) -> Markup:
    """Return a name in which a line may break after each underscore."""
    return Markup("_<wbr>").join(escape(name).split("_"))


def span_together(text: str) -> str:
    """Return a span of time (`1.000 s to 2.500 s`) that stays on one line; other text may break."""
    return _SPAN.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), unbroken(text))


def sentence(text: str) -> str:
    """Return a line of evidence as a sentence, with a capital letter and a full stop.

    If it begins with a name such as `broker-0`, the name keeps its lower case.
    """
    first_word = text.split(" ", 1)[0]
    # A name such as `broker-0` has a hyphen. A word that has a capital letter already is kept, too.
    is_name = not first_word.islower() or "-" in first_word
    begun = text if is_name else as_title(text)
    return begun if begun.endswith(".") else f"{begun}."


def moment_link(
    from_us: int, to_us: int | None = None, *, lane: str | None = None, text: str | None = None
) -> Markup:
    """Return a link to a moment or a span in the lanes; without `text`, the link shows the time.

    The link is `<a href="#<lane>" data-from=".." data-to="..">`. The page's script zooms to the
    span and marks the span in every chart on the time axis. It then scrolls to the chart with the
    id `lane`. If `lane` is None, it does not scroll.
    """
    if to_us is None:
        end_us, time_text = from_us, moment_text(from_us)
    else:
        end_us, time_text = to_us, f"{moment_text(from_us)} to {moment_text(to_us)}"
    shown = text or time_text
    return Markup('<a href="#{}" data-from="{}" data-to="{}">{}</a>').format(
        lane or "time", axis_seconds(from_us), axis_seconds(end_us), span_together(shown)
    )


def at_moment(time_us: int, lane: str = FAULTS) -> Markup:
    """Return `at 11.250 s` as a link to that moment of a lane."""
    return Markup("at ") + moment_link(time_us, lane=lane)


def between(from_us: int, to_us: int | None, end_us: int, lane: str = FAULTS) -> Markup:
    """Return `from 64.081 s to 93.212 s` as a link; if `to_us` is None, up to the run's end."""
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
    """Return names as a list in one sentence, in the order of their numbers."""
    return listed(in_number_order(set(names)))


def text_of(name: str, folder: str = "assets") -> str:
    """Return the text of a file in a folder of `pipeline.report`."""
    return (files("pipeline.report") / folder / name).read_text(encoding="utf-8")


def cell_text(value: Cell) -> str:
    """Return the text of a cell. An empty cell has a dash, because it would look like a defect."""
    if value is None or value == "":
        return "–"
    # bool comes before int, because it is a subclass of int.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return value


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
        # A misspelled name in a template is an error. By default it would be an empty text.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Tests and filters of the templates: `part is chart`, `value | cell`.
    parts = {"chart": Chart, "table": TextTable, "paragraph": Paragraph, "beside": Beside}
    for name, part in parts.items():
        # A function in a loop sees later values of the loop's variables. The default value of
        # `part` keeps the class of this pass.
        environment.tests[name] = lambda value, part=part: isinstance(value, part)
    environment.filters |= {
        "block": _as_block,
        "breaks": with_breaks,
        "cell": cell_text,
        "code": with_code,
        "sentence": sentence,
    }
    # Functions and values that every template can use.
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
        "coordinator_with_epoch": coordinator_with_epoch,
        "ordered": ordered,
        "quote": quote,
        "together": span_together,
    }
    return environment
