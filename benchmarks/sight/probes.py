"""Functions called by a copy of the source tree that contains every mutant, switched off.

A mutant is a small change of the code; its number also names its place. In sound code, every mutant
is off. The module `rewriting` makes the copy: a statement of mutant 7 becomes
`if on(7): mutated` with the sound statement under `else`. An expression without effects becomes
`mutated if on_value(7) else value(7, lambda: mutated, sound)`.

The functions note two things about each place: first, that it was reached; second, whether the
mutated form would have had another value. The second is noted only in a sound run, and only for an
expression without effects.

This module must not import any of the packages, because each of their modules imports this one.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

NO_MUTANT = -1
_PLAIN = (bool, int, str, bytes, float, type(None))
"""Types whose values are compared. A value of any other type counts as different."""


class _State:
    """The mutant that is on, and whether values are compared."""

    active = NO_MUTANT
    is_recording = False


_state = _State()
# The dicts without values are ordered sets.
reached: dict[int, None] = {}
"""Numbers of the places that were evaluated, at import or later."""
compared: dict[int, None] = {}
"""Places in `reached` whose expression has no effects: there, a mutant acts only by its value."""
_differing: dict[int, None] = {}
"""Places in `compared` whose mutated form had another value."""
_open: dict[int, int] = {}
"""For each place, the number of evaluations that `on_value` began and `value` has not ended.

If the sound expression raises an exception, `value` is not called, so the number stays above 0.
"""


def switch_on(number: int) -> None:
    """Turn one mutant on, and the others off."""
    _state.active = number


def record_values() -> None:
    """From now on, compare the value of each expression without effects with its mutated form."""
    _state.is_recording = True


def clear() -> None:
    """Turn every mutant off and forget what was noted."""
    _state.active, _state.is_recording = NO_MUTANT, False
    for noted in (reached, compared, _differing, _open):
        noted.clear()


def on(number: int) -> bool:
    """Note that a place is reached; return whether its mutant is on."""
    reached[number] = None
    return number == _state.active


def on_value(number: int) -> bool:
    """Do as `on` for an expression without effects. After False, the caller calls `value` next."""
    reached[number] = None
    compared[number] = None
    if _state.is_recording:
        _open[number] = _open.get(number, 0) + 1
    return number == _state.active


def value(number: int, mutated: Callable[[], object], sound: T) -> T:
    """Return the value of the sound expression; note if the mutated one has another value.

    `sound` is the value of the sound expression, which Python has evaluated as an argument.
    """
    if _state.is_recording:
        _open[number] -= 1
        if number not in _differing and not _is_equal(mutated, sound):
            _differing[number] = None
    return sound


def differing() -> set[int]:
    """Return the places whose mutated value differed, or whose sound expression raised."""
    return {*_differing, *(number for number, count in _open.items() if count)}


def _is_equal(mutated: Callable[[], object], sound: object) -> bool:
    """Return True if the mutated form has the value `sound`.

    Returns False if the mutated form raises, and if the type of a value is not in _PLAIN.
    """
    try:
        other = mutated()
    except Exception:
        return False
    if isinstance(sound, Enum):
        return other is sound  # members of an Enum are compared by identity
    return type(sound) in _PLAIN and type(other) is type(sound) and other == sound
