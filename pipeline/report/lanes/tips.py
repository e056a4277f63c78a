"""What a mark says when it is pointed at: lines of a name and a value, those that it has."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt


@dataclass(frozen=True, slots=True)
class Tip:
    """One line of a tooltip: the cell `field` under `title`.

    `unit` stands behind the value; `decimals` None: it is text, or a number printed as it is.
    """

    field: str
    title: str
    unit: str = ""
    decimals: int | None = None


def moment_tip(field: str, title: str, decimals: int = 3) -> Tip:
    """Return the line of a moment: seconds of the run's clock."""
    return Tip(field, title, "s", decimals)


FROM_TO = (moment_tip("a", "from"), moment_tip("b", "to"), Tip("d", "for"))
"""The lines that every bar ends with; `d` is its length in words."""


def tooltip_of(tips: Sequence[Tip]) -> alt.ExprRef:
    """Return a tooltip as a Vega expression over a row; a cell that is empty has no line.

    Vega-Lite's own tooltips would print `null` for it.
    """
    return alt.ExprRef(f"merge({', '.join(_line(each) for each in tips)})")


def _line(tip: Tip) -> str:
    cell = f"datum[{json.dumps(tip.field)}]"
    value = cell if tip.decimals is None else f"format({cell}, ',.{tip.decimals}f')"
    unit = f" + ' {tip.unit}'" if tip.unit else ""
    return f"isValid({cell}) && {cell} !== '' ? {{{json.dumps(tip.title)}: {value}{unit}}} : {{}}"
