"""Texts of the labels and tooltips of lanes, the charts that share the time axis of a page.

Names in a lane mostly begin alike, such as `consumer-readers-0` and `consumer-readers-1`. The
labels leave the common beginning out, and a note says it once. In the data of a lane, `a` and `b`
are the ends of a bar in seconds.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt

ROLE = "consumer-"
"""Beginning of every member's node name in the trace: `consumer-<group>-<number>`."""


def common_prefix(members: Iterable[str]) -> str:
    """Return the prefix that the labels of members leave out.

    The prefix is the role and the words that all names share, except the last shared word, which
    stays in the labels: `consumer-orders-` is the prefix of `consumer-orders-readers-0` and
    `consumer-orders-readers-1`. The prefix is empty if some name is not a member's, or is only a
    role and a number.
    """
    names = sorted(set(members))
    if not names or not all(name.startswith(ROLE) for name in names):
        return ""

    # The words of each name, without the number at its end.
    words = [name.removeprefix(ROLE).split("-")[:-1] for name in names]
    if not all(words):
        return ""

    # The number of words that all names share. `strict=False` ends the loop with the shortest name.
    shared = 0
    for words_at_place in zip(*words, strict=False):
        if len(set(words_at_place)) > 1:
            break
        shared += 1
    return ROLE + "".join(f"{word}-" for word in words[0][: max(0, shared - 1)])


def group_prefix(groups: Iterable[str]) -> str:
    """Return the prefix that labels `group · broker` leave out.

    If there is only one group, the labels leave it out. If there are several, the prefix is "".
    """
    names = set(groups)
    return f"{names.pop()} \u00b7 " if len(names) == 1 else ""


def prefix_note(prefix: str) -> str:
    """Return the sentence on a prefix that the names of members lack; "" without a prefix."""
    return f" Members are named without {prefix} in front." if prefix else ""


@dataclass(frozen=True, slots=True)
class Tip:
    """One line of a tooltip: `title`, then the cell with the key `field`.

    For example, `Tip("a", "from", "s", 3)` prints `from: 12.500 s` if the cell `a` is 12.5. With
    `decimals` None, the value is printed unchanged.
    """

    field: str
    title: str
    unit: str = ""
    decimals: int | None = None


def moment_tip(field: str, title: str, decimals: int = 3) -> Tip:
    """Return the line for a point in time, in seconds of the run's clock."""
    return Tip(field, title, "s", decimals)


FROM_TO = (moment_tip("a", "from"), moment_tip("b", "to"), Tip("d", "for"))
"""The last lines of every bar's tooltip; `d` is the bar's length as text."""


def tooltip_of(tips: Sequence[Tip]) -> alt.ExprRef:
    """Return a tooltip as a Vega expression over a row. A line whose cell is empty is left out.

    Vega-Lite's own tooltips would print `null` for an empty cell.
    """
    return alt.ExprRef(f"merge({', '.join(_line(tip) for tip in tips)})")


def _line(tip: Tip) -> str:
    """Return the Vega object with one line (title and value); without a value, an empty object."""
    cell = f"datum[{json.dumps(tip.field)}]"
    value = cell if tip.decimals is None else f"format({cell}, ',.{tip.decimals}f')"
    unit = f" + ' {tip.unit}'" if tip.unit else ""
    return f"isValid({cell}) && {cell} !== '' ? {{{json.dumps(tip.title)}: {value}{unit}}} : {{}}"
