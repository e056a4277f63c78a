"""Repair of a document with a wrong shape, so that the rest of the document can be judged.

Replaces bad values, and decides which problems of the repaired document may be reported. The module
does not know the rules.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.schema_errors import ShapeError, shape_errors

_MAX_REPAIRS = 50
_STAND_INS: tuple[object, ...] = ("5s", 1, "x", False, [], {})
"""Replacements for a bad value; the first that its place allows is taken."""
_TIMES = frozenset({"at", "duration", "every", "repeat"})
"""Keys of a fault that are judged together."""
_SECTION = "config"
"""The key of settings, which are judged together."""

_Steps = Sequence[str | int]
_Document = Any  # YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedDocument:
    """A document that its struct allows. `repaired`: the places that were changed."""

    document: object
    repaired: tuple[tuple[str | int, ...], ...]

    def judges(self, problem: Problem) -> bool:
        """Return whether a problem concerns the file itself, not a replaced value."""
        return not any(_is_beside(problem.path, steps) for steps in self.repaired)


def repair(document: object, struct: type[msgspec.Struct]) -> RepairedDocument | None:
    """Return a copy of `document` that `struct` allows; None if no replacement fits."""
    document = deepcopy(document)
    repaired: list[tuple[str | int, ...]] = []
    errors = shape_errors(document, struct)
    while errors and len(repaired) < _MAX_REPAIRS:
        repaired.append(_not_judged(errors[0]))
        for candidate in _candidates(document, errors[0]):
            left = shape_errors(candidate, struct)
            if len(left) < len(errors):
                document, errors = candidate, left
                break
        else:
            return None
    return None if errors else RepairedDocument(document=document, repaired=tuple(repaired))


def _not_judged(error: ShapeError) -> tuple[str | int, ...]:
    """Return the place of an error; for a meaningless key, the mapping around it.

    YAML splits `{target: member(readers, 0)}` at its comma; then the target is incomplete, too.
    """
    torn = error.is_unknown and error.meant is None and len(error.steps) > 1
    return error.steps[:-1] if torn else error.steps


def _candidates(document: object, error: ShapeError) -> Iterator[_Document]:
    """Yield copies in which the error's key is renamed, removed, or has another value."""
    *path, last = error.steps
    copy, holder = _copied(document, path)
    if isinstance(last, str) and last in holder:
        value = holder.pop(last)
        if error.meant is not None:
            renamed, holder = _copied(copy, path)
            holder[error.meant] = value
            yield renamed
        yield copy
    for stand_in in (*error.choices, *_STAND_INS):
        copy, holder = _copied(document, path)
        holder[last] = deepcopy(stand_in)
        yield copy


def _copied(document: object, path: _Steps) -> tuple[_Document, _Document]:
    """Return a copy of a document, and the part of the copy at `path`."""
    copy: _Document = deepcopy(document)
    holder = copy
    for step in path:
        holder = holder[step]
    return copy, holder


def _is_beside(path: str, steps: _Steps) -> bool:
    """Return whether a problem's place is judged together with a repaired place."""
    *parents, last = steps
    parent, place = path_text(parents), path_text(steps)
    if path == place or path.startswith((f"{place}.", f"{place}[")):
        return True
    if parents and parents[-1] == _SECTION:
        return path.startswith(f"{parent}.")
    return last in _TIMES and path in {f"{parent}.{key}" for key in _TIMES}


def path_text(steps: _Steps) -> str:
    """Return a place in the form of problems: `faults[0].target`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
