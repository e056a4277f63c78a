"""The parts of a section: paragraphs, text tables, and charts.

A chart goes through these steps:

1. Altair, a Python library, builds its Vega-Lite specification.
2. `chart_specs` compiles the specification to Vega, the library that draws the chart.
3. `page` embeds the result and the chart's data.
4. `assets/report.js` draws the chart when the reader scrolls near it.

Colours are CSS custom properties, whose values depend on the theme, and fills can be patterns
(`url(#hatch-1)`). So one chart works in the light theme, in the dark theme and in print. Behind the
charts whose x axis is the time, a hatched band shows when a fault was in force.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import altair as alt

FROM_S, TO_S = "from_s", "to_s"
"""Names of two Vega parameters: the ends of the visible part of the time axis, in seconds. They
change when the reader zooms.
"""

SERIES = tuple(f"var(--c{index})" for index in range(1, 9))
"""Plain fills. They also differ in lightness, so that they differ on black-and-white printers."""
HATCHES = tuple(f"url(#hatch-{index})" for index in range(1, 9))
"""The same colours with a pattern over each."""
SOFT_HATCHES = tuple(f"url(#soft-{index})" for index in range(1, 9))
"""HATCHES in paler colours: each is mixed half with the page's background (PAPER), so that text on
it is legible."""
INK, MUTED, LINE, PAPER = "var(--ink)", "var(--muted)", "var(--line)", "var(--paper)"
"""Colours of text, of less important text, of grid lines, and of the page's background."""
GOOD, BAD, WARN, ACCENT = "var(--good)", "var(--bad)", "var(--warn)", "var(--accent)"
"""Colours with a meaning: a good and a bad outcome, a warning, and what the reader can use."""
BAD_HATCH, FAULT_HATCH = "url(#hatch-bad)", "url(#hatch-fault)"
"""BAD_HATCH means that a partition has two owners, or a group two coordinators. FAULT_HATCH means
that a fault is in force."""

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table of text.

    - `numeric`: the headings of the columns that are aligned right.
    - `folded`: a summary line under which the table is folded; None if the table is open.
    - `blocks`: the number of rows of each block. A wide table does not fit on a phone, so there
      each block becomes a small table of its own, turned by 90 degrees: it has a line for each
      heading, and a column for each row of the block. A block has one or two rows with the same
      first cell. If there are no blocks, a phone shows the table as a desktop does.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    numeric: tuple[str, ...] = ()
    folded: str | None = None
    blocks: tuple[int, ...] = ()

    @property
    def bodies(self) -> tuple[tuple[tuple[Cell, ...], ...], ...]:
        """Return the rows of each block; all rows if there are no blocks."""
        if not self.blocks:
            return (self.rows,)
        rows = iter(self.rows)
        return tuple(tuple(islice(rows, number)) for number in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A list above a chart, from which the reader chooses one of the options.

    The choice becomes the value of the chart's parameter `param`. At first it is the first option.
    Charts of one section with the same `param` change together.
    """

    param: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture.

    - `id`: unique in the page; becomes the element's id.
    - `about`: one sentence on the contents, above the picture; screen readers read it.
    - `more`: explanation of how to read the picture, folded under it.
    - `picks`: the choices above the picture.
    - `spec`: the specification; it refers to its data by `alt.NamedData(name)`, with the names in
      `data`.
    - `on_time_axis`: True if the chart's x is the time (`time_x`), between FROM_S and TO_S
      (`time_params`).
    - `table`: the contents as text, for readers who do not see the picture.
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
    """Text. `html` is trusted markup, in which texts from a run are escaped (markupsafe)."""

    html: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Parts side by side if the screen is wide enough, one below the other on a phone."""

    parts: tuple[Paragraph | TextTable | Chart, ...]


Part = Paragraph | TextTable | Chart | Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page, under a heading. `lead` is a sentence on the question that it answers."""

    id: str
    title: str
    lead: str = ""
    parts: tuple[Part, ...] = ()


def soft(fill: str) -> str:
    """Return a fill of SERIES or HATCHES, or a colour, mixed half with the paper's colour.

    The result is opaque, because a fill with an opacity of one half would look different in the
    legend and in front of a fault's band. Other patterns, the paper's colour and "transparent" are
    returned unchanged.
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
    """Return the x encoding on the shared time axis: seconds of the run's clock."""
    # The axis does not take its ends from the data, which may be empty.
    domain = [alt.ExprRef(FROM_S), alt.ExprRef(TO_S)]
    scale = alt.Scale(domain=domain, nice=False, zero=False)
    return alt.X(field_name, type="quantitative", scale=scale, title=title)


def axis_seconds(time_us: int | None) -> float | None:
    """Return microseconds as seconds, the unit of charts; None (no such time) stays None."""
    return None if time_us is None else time_us / 1_000_000
