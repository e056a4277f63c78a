"""What a section of the report is made of: paragraphs, tables of text, and charts on one time axis.

A chart is a Vega-Lite specification (Altair builds it); `page` compiles it to Vega and embeds its
data, `assets/report.js` draws it when it comes near the screen. Colours are CSS custom properties
and fills may be patterns (`url(#hatch-1)`), so that one picture serves light, dark and print.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

FROM_S = "from_s"
TO_S = "to_s"
"""The two parameters by which the page moves every chart on its time axis: seconds."""

SERIES = tuple(f"var(--c{index})" for index in range(1, 9))
"""Plain fills, told apart by lightness as well: black and white printers exist."""
HATCHES = tuple(f"url(#hatch-{index})" for index in range(1, 9))
"""The same colours with a pattern over each."""
SOFT_HATCHES = tuple(f"url(#soft-{index})" for index in range(1, 9))
"""The same, half way to the paper: text on them reads (`soft` makes plain fills so)."""
INK, MUTED, LINE, PAPER = "var(--ink)", "var(--muted)", "var(--line)", "var(--paper)"
GOOD, BAD, WARN, ACCENT = "var(--good)", "var(--bad)", "var(--warn)", "var(--accent)"
BAD_HATCH, FAULT_HATCH = "url(#hatch-bad)", "url(#hatch-fault)"
"""Two owners or two coordinators at once; a fault in force."""

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table of text. `numeric` names the headings of columns that are aligned right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    numeric: tuple[str, ...] = ()
    folded: str | None = None  # a summary line: the table is folded away under it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A choice above a chart: sets parameter `param` to one of `options`, at first the first.

    Charts of one section with the same choice follow one another.
    """

    param: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture.

    Shape: `spec` refers to its data by `alt.NamedData(name)` for the names in `data`; `id` is
    unique in the page and becomes the element's id. `on_time_axis`: it has the parameters FROM_S
    and TO_S (`time_params`) and its x is `time_x`. `about` says in a sentence what is seen: it
    stands above the picture and is read aloud for it; `more`, folded under it, how to read it.
    `table` says the same in text.
    """

    id: str
    title: str
    about: str
    spec: alt.TopLevelMixin
    data: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    on_time_axis: bool = False
    picks: tuple[Pick, ...] = ()
    more: str = ""
    table: TextTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Text. `html` is trusted markup: what came from a run is escaped in it (markupsafe)."""

    html: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Parts side by side where there is room for them, under one another on a phone."""

    parts: tuple[Paragraph | TextTable | Chart, ...]


Part = Paragraph | TextTable | Chart | Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page under a heading; `lead` says in a sentence what it answers."""

    id: str
    title: str
    lead: str = ""
    parts: tuple[Part, ...] = ()


def soft(fill: str) -> str:
    """Return a fill of SERIES or HATCHES, or a colour, half way to the paper; it is opaque.

    An opacity of one half would look the same on paper only: not over the band of a fault, and not
    in a legend. Other patterns, paper and nothing stay what they are.
    """
    if fill in HATCHES:
        return SOFT_HATCHES[HATCHES.index(fill)]
    if fill.startswith("url(") or fill in (PAPER, "transparent"):
        return fill
    return f"color-mix(in srgb, {fill} 50%, {PAPER})"


def time_params() -> tuple[alt.Parameter, alt.Parameter]:
    """Return the parameters of the shared time axis; the page sets them."""
    return alt.param(name=FROM_S, value=0), alt.param(name=TO_S, value=1)


def time_x(field_name: str, *, title: str | None = None) -> alt.X:
    """Return x on the shared time axis: seconds of the run's clock."""
    domain = [alt.ExprRef(FROM_S), alt.ExprRef(TO_S)]  # never from data: there may be none
    scale = alt.Scale(domain=domain, nice=False, zero=False)
    return alt.X(field_name, type="quantitative", scale=scale, title=title)


def axis_seconds(time_us: int | None) -> float | None:
    """Return a moment as charts have it: seconds, to the microsecond."""
    return None if time_us is None else time_us / 1_000_000
