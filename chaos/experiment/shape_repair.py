"""Repair of a document with a wrong shape, so that the semantic rules can judge the rest of it.

A user should see all errors of a file together: that `members` is a word instead of a number, and
that another group reads a topic which is not defined. But a document with a wrong value cannot
become structs, and the rules about topics need structs. So in a copy of the document each wrong
value is replaced by any valid one. Problems at such a place are not reported, because they would be
about the replacement.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.schema_errors import ShapeError, shape_errors

_MAX_REPAIRS = 50
"""No more values are replaced than this, because each needs several checks of the document."""
_STAND_INS: tuple[object, ...] = ("5s", 1, "x", False, [], {})
"""Replacements for a bad value, of each type. The first that is valid at the place is used."""
_TIMES = frozenset({"at", "duration", "every", "repeat"})
"""Keys of a fault that rules compare with each other. So if one value was replaced, none of them is
judged."""
_SECTION = "config"
"""Key of a section of settings. Rules compare settings with each other. So if one setting was
replaced, no setting of its section is judged."""

_Steps = Sequence[str | int]
_Document = Any  # YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedDocument:
    """A document that its struct allows; `repaired` has the places that were changed."""

    document: object
    repaired: tuple[tuple[str | int, ...], ...]

    def judges(self, problem: Problem) -> bool:
        """Return True if a problem of this document is a problem of the original file, too.

        The result is False for a problem that may be caused by a replaced value.
        """
        return not any(_depends_on(problem.path, steps) for steps in self.repaired)


def repair(document: object, struct: type[msgspec.Struct]) -> RepairedDocument | None:
    """Return a copy of `document` that `struct` allows, or None if no replacement is valid."""
    document = deepcopy(document)
    repaired: list[tuple[str | int, ...]] = []
    errors = shape_errors(document, struct)
    # Each round repairs one error: it takes the first candidate with fewer errors. Such a candidate
    # lacks this error, and has no new error.
    while errors and len(repaired) < _MAX_REPAIRS:
        repaired.append(_unjudged_place(errors[0]))
        for candidate in _candidates(document, errors[0]):
            remaining = shape_errors(candidate, struct)
            if len(remaining) < len(errors):
                document, errors = candidate, remaining
                break
        else:  # no candidate has fewer errors
            return None
    return None if errors else RepairedDocument(document=document, repaired=tuple(repaired))


def _unjudged_place(error: ShapeError) -> tuple[str | int, ...]:
    """Return the place that must not be judged because of an error.

    This is the place of the error, or the mapping around it if an unknown key resembles no known
    key. Such a key may be a part of a value: YAML splits `{target: member(readers, 0)}` at its
    comma, into the target `member(readers` and the key `0)`. So the target must not be judged.
    """
    is_split_value = error.is_unknown and error.meant is None and len(error.steps) > 1
    return error.steps[:-1] if is_split_value else error.steps


def _candidates(document: object, error: ShapeError) -> Iterator[_Document]:
    """Yield copies in which the error's key is renamed, removed, or has another value."""
    # `holder` is the mapping or list around the wrong value, within the copy.
    *path, last = error.steps
    copy, holder = _copy_with_part(document, path)
    # Only a key is removed. Without an element of a list, the indexes of later ones would change.
    if isinstance(last, str) and last in holder:
        value = holder.pop(last)
        if error.meant is not None:
            renamed, holder = _copy_with_part(copy, path)
            holder[error.meant] = value
            yield renamed
        yield copy
    for stand_in in (*error.choices, *_STAND_INS):
        copy, holder = _copy_with_part(document, path)
        holder[last] = deepcopy(stand_in)
        yield copy


def _copy_with_part(document: object, path: _Steps) -> tuple[_Document, _Document]:
    """Return a copy of a document, and the part of the copy at `path`."""
    copy: _Document = deepcopy(document)
    holder = copy
    for step in path:
        holder = holder[step]
    return copy, holder


def _depends_on(path: str, steps: _Steps) -> bool:
    """Return True if a problem at `path` may be caused by the replacement at `steps`."""
    *parents, last = steps
    parent, place = path_text(parents), path_text(steps)
    if path == place or path.startswith((f"{place}.", f"{place}[")):  # at the place or below it
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
