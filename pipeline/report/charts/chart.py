"""The parts of a section: paragraphs, text tables, and charts.

A chart goes through these steps:

1. Python builds its specification in the language Vega-Lite, with the library Altair.
2. `chart_specs` compiles the specification to the language Vega.
3. `page` embeds the result and the chart's data.
4. `assets/report.js` draws the chart with the library Vega when the reader scrolls near it.

Colours are CSS variables such as `var(--ink)`, whose values depend on the theme. So a chart has the
right colours in the light theme, in the dark theme and in print. A fill is a colour or a pattern,
such as `url(#hatch-1)`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import altair as alt

FROM_S, TO_S = "from_s", "to_s"
"""Names of two parameters of Vega. Their values are the ends of the visible part of the time axis,
in seconds, and change when the reader zooms.
"""

SERIES = tuple(f"var(--c{index})" for index in range(1, 9))
"""Plain fills. They also differ in lightness, so they can be distinguished in black and white."""
HATCHES = tuple(f"url(#hatch-{index})" for index in range(1, 9))
"""The colours of SERIES with a pattern over each."""
SOFT_HATCHES = tuple(f"url(#soft-{index})" for index in range(1, 9))
"""HATCHES in paler colours, on which text is legible: each colour is mixed half with PAPER."""
INK, MUTED, LINE, PAPER = "var(--ink)", "var(--muted)", "var(--line)", "var(--paper)"
"""Colours of text, of less important text, of grid lines, and of the page's background."""
GOOD, BAD, WARN, ACCENT = "var(--good)", "var(--bad)", "var(--warn)", "var(--accent)"
"""Colours with a meaning: a good and a bad outcome, a warning, and things that can be clicked."""
BAD_HATCH, FAULT_HATCH = "url(#hatch-bad)", "url(#hatch-fault)"
"""BAD_HATCH means that a partition has two owners, or a group two coordinators. FAULT_HATCH means
that a fault is in force."""

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table of text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    numeric: tuple[str, ...] = ()
    """The headings of the columns that are aligned right."""
    folded: str | None = None
    """The line under which the table is folded, until the reader clicks the line; None for an open
    table."""
    blocks: tuple[int, ...] = ()
    """The number of rows in each block of the table; () if the table has no blocks.

    Blocks are for a table that is too wide for a phone. A block has one or two rows with the same
    first cell. A phone shows each block as a small table, which is turned by 90 degrees: it has a
    line for each heading, and a column for each row of the block. A phone shows a table without
    blocks as it is."""

    @property
    def bodies(self) -> tuple[tuple[tuple[Cell, ...], ...], ...]:
        """The rows of each block; all rows if there are no blocks."""
        if not self.blocks:
            return (self.rows,)
        rows = iter(self.rows)
        return tuple(tuple(islice(rows, number)) for number in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A list above a chart, from which the reader picks one of the options.

    The option becomes the value of the chart's parameter `param`, at first the first option. All
    charts of a section with this parameter change together.
    """

    param: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart, with the texts around it."""

    id: str
    """The id of the chart's element in the page, which no other element has."""
    title: str
    about: str
    """One sentence on the contents, above the chart. Screen readers read this sentence."""
    spec: alt.TopLevelMixin
    """The specification, which refers to its data by `alt.NamedData(name)`."""
    data: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The data sets, by the names in the specification."""
    on_time_axis: bool = False
    """True if the x axis is the time (`time_x`). All charts on the time axis move and zoom
    together."""
    picks: tuple[Pick, ...] = ()
    """Lists above the chart, from which the reader picks what the chart shows."""
    more: str = ""
    """An explanation of how to read the chart, which is folded under the chart."""
    table: TextTable | None = None
    """The contents as text, for readers who do not see the chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Text. `html` is trusted markup, in which texts from a run are escaped (markupsafe)."""

    html: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Parts side by side if the screen is wide enough, one below the other on a phone."""

    parts: tuple[Paragraph | TextTable | Chart, ...]


Part = Paragraph | TextTable | Chart | Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page: `title` is its heading, and `lead` is a sentence below the heading."""

    id: str
    title: str
    lead: str = ""
    parts: tuple[Part, ...] = ()


def soft(fill: str) -> str:
    """Return a paler version of a fill: its colour is mixed half with PAPER.

    (An opacity of one half would look the same on the page's background. But in front of the band
    of a fault, the band would shine through.) PAPER, "transparent", and patterns that are not in
    HATCHES stay as they are.
    """
    if fill in HATCHES:
        return SOFT_HATCHES[HATCHES.index(fill)]
    if fill.startswith("url(") or fill in (PAPER, "transparent"):
        return fill
    return f"color-mix(in srgb, {fill} 50%, {PAPER})"


def time_params() -> tuple[alt.Parameter, alt.Parameter]:
    """Return the parameters of the shared time axis. The page sets their values."""
    return alt.param(name=FROM_S, value=0), alt.param(name=TO_S, value=1)


def time_x(field_name: str, *, title: str | None = None) -> alt.X:
    """Return the x encoding on the shared time axis: seconds of the run's clock."""
    # The axis does not take its ends from the data, which may be empty.
    domain = [alt.ExprRef(FROM_S), alt.ExprRef(TO_S)]
    scale = alt.Scale(domain=domain, nice=False, zero=False)
    return alt.X(field_name, type="quantitative", scale=scale, title=title)


def axis_seconds(time_us: int | None) -> float | None:
    """Return microseconds as seconds, which are the unit of charts; None for None."""
    return None if time_us is None else time_us / 1_000_000
