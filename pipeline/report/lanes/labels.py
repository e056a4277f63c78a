"""Texts of the labels and tooltips of lanes, the charts that share the time axis of a page.

Names in a lane mostly begin alike, such as `consumer-readers-0` and `consumer-readers-1`. The
labels leave the common beginning out, and a note tells it once.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt

ROLE = "consumer-"
"""Beginning of every member's node name in the trace: `consumer-<group>-<number>`."""


def common_prefix(members: Iterable[str]) -> str:
    """Return the prefix that the labels of members leave out; "" if there is none.

    For example, the prefix of `consumer-orders-readers-0` and `consumer-orders-readers-1` is
    `consumer-orders-`. The last word that all names share, here `readers`, stays in the labels.
    There is no prefix if one of the names is not the name of a member, or if it has no word between
    ROLE and the number.
    """
    names = sorted(set(members))
    if not names or not all(name.startswith(ROLE) for name in names):
        return ""

    # The words of each name, without the number at its end.
    words = [name.removeprefix(ROLE).split("-")[:-1] for name in names]
    if not all(words):
        return ""

    # The number of words that all names share. With `strict=False`, the loop ends with the words of
    # the shortest name.
    shared = 0
    for words_at_same_index in zip(*words, strict=False):
        if len(set(words_at_same_index)) > 1:
            break
        shared += 1
    return ROLE + "".join(f"{word}-" for word in words[0][: max(0, shared - 1)])


def group_prefix(groups: Iterable[str]) -> str:
    """Return `readers · ` if `readers` is the only group; "" if there are several.

    Labels such as `readers · broker-1` leave this prefix out.
    """
    names = set(groups)
    return f"{names.pop()} \u00b7 " if len(names) == 1 else ""


def prefix_note(prefix: str) -> str:
    """Return the note about the prefix that labels leave out; "" if there is no prefix."""
    return f" Members are named without {prefix} in front." if prefix else ""


@dataclass(frozen=True, slots=True)
class Tip:
    """One line of a tooltip: `title`, then the cell with the key `field`.

    For example, `Tip("a", "from", "s", 3)` prints `from: 12.500 s` if the cell `a` is 12.5. If
    `decimals` is None, the value is printed unchanged.
    """

    field: str
    title: str
    unit: str = ""
    decimals: int | None = None


def moment_tip(field: str, title: str, decimals: int = 3) -> Tip:
    """Return the line for a point in time, in seconds of the run's clock."""
    return Tip(field, title, "s", decimals)


FROM_TO = (moment_tip("a", "from"), moment_tip("b", "to"), Tip("d", "for"))
"""The last lines of the tooltip of every bar: its ends in seconds, and its length as text."""


def tooltip_of(tips: Sequence[Tip]) -> alt.ExprRef:
    """Return a tooltip as a Vega expression, which leaves out the lines whose cells are empty.

    Vega-Lite's own tooltips would print `null` for an empty cell.
    """
    return alt.ExprRef(f"merge({', '.join(_line(tip) for tip in tips)})")


def _line(tip: Tip) -> str:
    """Return a Vega expression for one line: `{"from": "12.500 s"}`, or `{}` for an empty cell."""
    cell = f"datum[{json.dumps(tip.field)}]"
    value = cell if tip.decimals is None else f"format({cell}, ',.{tip.decimals}f')"
    unit = f" + ' {tip.unit}'" if tip.unit else ""
    return f"isValid({cell}) && {cell} !== '' ? {{{json.dumps(tip.title)}: {value}{unit}}} : {{}}"
