"""The switch and the probes of a tree that has every mutant in it.

Each changed place asks `on` or `on_value` with its number: is this mutant on? While a sound run is
recorded, the places that were reached are noted, and of expressions without effects those whose
mutated form would have had another value. Must not import anything of the packages.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

NOBODY = -1
_PLAIN = (bool, int, str, bytes, float, type(None))


class _State:
    """What the switch is set to, and what was noted."""

    active = NOBODY
    is_recording = False


_state = _State()
reached: dict[int, None] = {}
"""Numbers of the places that were evaluated, at import or later."""
compared: dict[int, None] = {}
"""Those of `reached` whose expression has no effects: they change a run by their value alone."""
_differing: dict[int, None] = {}
_open: dict[int, int] = {}


def switch_on(number: int) -> None:
    """Turn one mutant on, and the others off."""
    _state.active = number


def record_values() -> None:
    """Compare, from now on, the value of each expression without effects with its mutated form."""
    _state.is_recording = True


def clear() -> None:
    """Turn every mutant off and forget what was noted."""
    _state.active, _state.is_recording = NOBODY, False
    for noted in (reached, compared, _differing, _open):
        noted.clear()


def on(number: int) -> bool:
    """Note that a place is reached; return whether its mutant is on."""
    reached[number] = None
    return number == _state.active


def on_value(number: int) -> bool:
    """As `on`, before an expression without effects, which ends with `value`."""
    reached[number] = None
    compared[number] = None
    if _state.is_recording:
        _open[number] = _open.get(number, 0) + 1
    return number == _state.active


def value(number: int, mutated: Callable[[], object], sound: T) -> T:
    """Return the value of the sound expression; note if the mutated one has another value."""
    if _state.is_recording:
        _open[number] -= 1
        if number not in _differing and not _is_equal(mutated, sound):
            _differing[number] = None
    return sound


def differing() -> set[int]:
    """Return the compared expressions that had another value when mutated, or raised themselves."""
    return {*_differing, *(number for number, count in _open.items() if count)}


def _is_equal(mutated: Callable[[], object], sound: object) -> bool:
    try:
        other = mutated()
    except Exception:
        return False
    if isinstance(sound, Enum):
        return other is sound
    return type(sound) in _PLAIN and type(other) is type(sound) and other == sound
