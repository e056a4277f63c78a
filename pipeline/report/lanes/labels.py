"""What labels and tooltips of a lane say, and what labels leave out because all rows have it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt

ROLE = "consumer-"
"""What the name of every member begins with in the trace."""


def common_prefix(members: Iterable[str]) -> str:
    """Return what the labels of members leave out: `consumer-orders-` of `…readers-0`, `…-1`.

    The role goes, and of the words that all names share, all but the last one. Empty if some name
    is no member's, or has nothing but the role and a number.
    """
    names = sorted(set(members))
    if not names or not all(name.startswith(ROLE) for name in names):
        return ""
    words = [name.removeprefix(ROLE).split("-")[:-1] for name in names]
    if not all(words):
        return ""
    shared = 0
    for place in zip(*words, strict=False):
        if len(set(place)) > 1:
            break
        shared += 1
    return ROLE + "".join(f"{word}-" for word in words[0][: max(0, shared - 1)])


def group_prefix(groups: Iterable[str]) -> str:
    """Return what labels `group · broker` leave out: the group, if there is only one."""
    found = set(groups)
    return f"{found.pop()} \u00b7 " if len(found) == 1 else ""


def prefix_note(prefix: str) -> str:
    """Return how a reader is told that members' names stand without `prefix`."""
    return f" Members are named without {prefix} in front." if prefix else ""


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
