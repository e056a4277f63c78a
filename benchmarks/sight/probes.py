"""Functions called by a copy of the source tree that contains every mutant, switched off.

A mutant is a small change of the code; its number also names its place. Sound code runs with every
mutant off. The module `rewriting` makes the copy: a statement of mutant 7 becomes
`if on(7): mutated` with the sound statement under `else`. An expression without effects becomes
`mutated if on_value(7) else value(7, lambda: mutated, sound)`.

Two things are noted about each place: that it was reached; and, in a sound run and for an
expression without effects, whether the mutated form would have had another value.

This module must not import anything of the packages: they import it from each of their modules.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

NO_MUTANT = -1
_PLAIN = (bool, int, str, bytes, float, type(None))
"""Types whose values are compared; a value of another type always counts as different."""


class _State:
    """The mutant that is on, and whether values are compared."""

    active = NO_MUTANT
    is_recording = False


_state = _State()
# The dicts without values are ordered sets.
reached: dict[int, None] = {}
"""Numbers of the places that were evaluated, at import or later."""
compared: dict[int, None] = {}
"""Places of `reached` whose expression has no effects: a mutant there acts only by its value."""
_differing: dict[int, None] = {}
"""Places of `compared` whose mutated form had another value."""
_open: dict[int, int] = {}
"""By place, the number of evaluations that `on_value` began and `value` did not end.

If the sound expression raises an exception, `value` is not called, and the number stays above 0.
"""


def switch_on(number: int) -> None:
    """Turn one mutant on, and the others off."""
    _state.active = number


def record_values() -> None:
    """Compare, from now on, the value of each expression without effects with its mutated form."""
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
    """Do as `on`, for an expression without effects. If False, the caller calls `value` next."""
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
    """Return True if the mutated form has the value `sound`, as far as _PLAIN can be compared.

    False if it raises, and for values of other types.
    """
    try:
        other = mutated()
    except Exception:
        return False
    if isinstance(sound, Enum):
        return other is sound  # the type of a member is not among _PLAIN
    return type(sound) in _PLAIN and type(other) is type(sound) and other == sound
