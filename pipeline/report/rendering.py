"""Renders the Jinja2 templates of the report, which hold the sentences of its pages.

A template has a macro for each sentence, paragraph or list of a page. Python code collects the
facts and passes them to a macro: `render_line("chains", "client_chain", chain)` renders the macro
`client_chain` of the file `templates/chains.j2`. A fact can contain a text from the run, such as
the name of a group. Jinja2 escapes such texts, because `autoescape` is on.
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
"""The last digit of a number, and the number's unit. `unbroken` keeps the two on one line."""
_MIDDLE_OF_SPAN = re.compile(r"\d\N{NO-BREAK SPACE}s to (run end|[\d.]+)")
"""The middle of a span of time: in `1.000 s to 2.500 s`, the part `0 s to 2.500`. The space before
the first `s` is a no-break space by then, because `unbroken` is applied first.
"""
_CODE = re.compile(r"`([^`<]+)`")
"""A part between backticks."""
_BLOCK = re.compile(r"\s*<(p|ul|ol|dl|div|pre|details|h[3-6]|table|figure|section|blockquote)\b")
"""The beginning of markup that is a block already. It needs no paragraph around it."""

# Ids of lanes on the page, to which links lead. A lane is a chart whose x axis is the run's time.
FAULTS = "lane-faults"
COORDINATORS = "lane-coordinators"
OWNERSHIP = "lane-ownership"
AVAILABILITY = "lane-availability"
REBALANCES = "lane-rebalances"


def render_line(template: str, macro: str, *facts: object, **more: object) -> Markup:
    """Return a macro's text as one line of markup, in which `code` between backticks is marked.

    `template` is the name of a file in the folder `templates`, without `.j2`. `facts` and `more`
    are the arguments of the macro.
    """
    line = " ".join(render_block(template, macro, *facts, **more).split())
    # The macro has escaped its facts. As Markup, the line is not escaped a second time.
    return with_code(Markup(unbroken(line)))


def render_block(template: str, macro: str, *facts: object, **more: object) -> Markup:
    """Return a macro's text with its line breaks, which matter in commands and files."""
    text: Markup = getattr(_module(template), macro)(*facts, **more)
    return text.strip()


def render_template(template: str, **values: object) -> str:
    """Return a whole template, filled with `values`."""
    return _environment().get_template(f"{template}.j2").render(**values).strip()


def unbroken(text: str) -> str:
    """Return a text whose lines cannot break between a number and its unit, such as `1.5 s`."""
    return _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


def with_code(text: str) -> Markup:
    """Return text as markup in which the parts between backticks are marked as code.

    A plain text is escaped. A text that is Markup already is not escaped again.
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def with_breaks(name: str) -> Markup:
    """Return a name in which a line may break after each underscore."""
    return Markup("_<wbr>").join(escape(name).split("_"))


def span_together(text: str) -> str:
    """Return a text in which a span of time such as `1.000 s to 2.500 s` stays on one line.

    Text around the span may break as usual.
    """
    return _MIDDLE_OF_SPAN.sub(
        lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), unbroken(text)
    )


def sentence(text: str) -> str:
    """Return a text as a sentence, with a capital letter and a full stop.

    For example, `one owner again` becomes `One owner again.` But `broker-0 crashed` becomes
    `broker-0 crashed.`, because names of nodes keep their lower case.
    """
    first_word = text.split(" ", 1)[0]
    is_name_of_node = "-" in first_word
    if first_word.islower() and not is_name_of_node:
        text = as_title(text)
    return text if text.endswith(".") else f"{text}."


def moment_link(
    from_us: int, to_us: int | None = None, *, lane: str | None = None, text: str | None = None
) -> Markup:
    """Return a link to a moment, or to a span of time, in the charts on the time axis.

    The link is `<a href="#<lane>" data-from=".." data-to="..">`. If the reader clicks the link, the
    page's script zooms all charts on the time axis to the span, and marks the span in them. Then it
    scrolls to the chart with the id `lane`. If `lane` is None, the address is `#time`, and the page
    does not scroll.

    `text` is the text of the link; by default the time: `1.000 s` or `1.000 s to 2.500 s`.
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


def between(from_us: int, to_us: int | None, run_end_us: int, lane: str = FAULTS) -> Markup:
    """Return `from 64.081 s to 93.212 s` as a link.

    If `to_us` is None, the text is `from 64.081 s to the end of the run`.
    """
    if to_us is None:
        to_us, end_text = run_end_us, "the end of the run"
    else:
        end_text = moment_text(to_us)
    text = f"from {moment_text(from_us)} to {end_text}"
    return moment_link(from_us, to_us, lane=lane, text=text)


def and_list(parts: Sequence[str | Markup]) -> Markup:
    """Return `a, b and c`."""
    shown = [escape(part) for part in parts]
    if len(shown) < 2:
        return Markup("").join(shown)
    return Markup(", ").join(shown[:-1]) + Markup(" and ") + shown[-1]


def ordered(names: Iterable[str]) -> str:
    """Return names as a list within a sentence, sorted by number: `group-2, group-10`."""
    return listed(in_number_order(set(names)))


def text_of(name: str, folder: str = "assets") -> str:
    """Return the text of a file in a folder of `pipeline.report`."""
    return (files("pipeline.report") / folder / name).read_text(encoding="utf-8")


def cell_text(value: Cell) -> str:
    """Return the text of a table's cell: `12,345`, `0.25` or `yes`, for example."""
    if value is None or value == "":
        return "–"  # without the dash, the empty cell would look like a defect
    # bool is a subclass of int, so the question for bool must come first.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return value


def _as_block(html: str) -> Markup:
    """Return trusted markup as a block. Markup that is no block yet becomes a paragraph."""
    return Markup(html if _BLOCK.match(html) else f"<p>{html}</p>")


@lru_cache(maxsize=32)
def _module(template: str) -> Any:  # noqa: ANN401 - its attributes are the template's macros
    """Return a template as a module, whose functions are the template's macros."""
    return _environment().get_template(f"{template}.j2").module


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """Return the settings of Jinja2, with the names that every template can use."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: text_of(name, "templates")),
        autoescape=True,
        # A misspelled name in a template shall be an error. By default it would be an empty text.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Templates can ask `part is chart`, for example.
    parts = {"chart": Chart, "table": TextTable, "paragraph": Paragraph, "beside": Beside}
    for name, part in parts.items():
        # A lambda that read the variable `part` would see its last value, because the lambda is
        # called after the loop. The default value keeps the present class for each lambda.
        environment.tests[name] = lambda value, part=part: isinstance(value, part)
    # Filters are functions that a template writes behind a value: `value | cell`.
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
