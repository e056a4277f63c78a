"""Repair of a document with a wrong shape, so that the semantic rules can judge the rest of it.

A user should see all errors of a file together. For example, the file may have an error of shape:
`members` is a word instead of a number. It may also have an error that only a semantic rule finds:
a group reads a topic that is not defined. But a document with a wrong value cannot be converted to
structs, and the rules need structs.

So this module makes a copy of the document in which each wrong value is replaced by a valid value.
Then the rules can judge the copy. Problems at the place of a replacement are not reported, because
they would be about a value that the user has not written.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.schema_errors import ShapeError, shape_errors

_MAX_REPAIRS = 50
"""Maximum number of replacements, because each needs several checks of the whole document."""
_STAND_INS: tuple[object, ...] = ("5s", 1, "x", False, [], {})
"""Values of different types that can replace a wrong value.

The first of these values that is valid at the place of the wrong value is used.
"""
_TIMES = frozenset({"at", "duration", "every", "repeat"})
"""Keys of a fault whose values the rules compare with each other.

So if one of these values was replaced, no problem about any of these keys is reported.
"""
_SECTION = "config"
"""Key of a section with settings of Kafka, which the rules compare with each other.

So if one setting was replaced, no problem about any setting of this section is reported.
"""

_Steps = Sequence[str | int]
_Document = Any  # YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedDocument:
    """A document with a valid shape. `repaired` has the places that were changed in it."""

    document: object
    repaired: tuple[tuple[str | int, ...], ...]

    def judges(self, problem: Problem) -> bool:
        """Return True if a problem of this document is also a problem of the original file.

        Return False if the problem may be caused by a replaced value.
        """
        return not any(_depends_on(problem.path, steps) for steps in self.repaired)


def repair(document: object, struct: type[msgspec.Struct]) -> RepairedDocument | None:
    """Return a copy of `document` with a valid shape for `struct`.

    Return None if no replacement helps, or if more than _MAX_REPAIRS would be needed.
    """
    document = deepcopy(document)
    repaired: list[tuple[str | int, ...]] = []
    errors = shape_errors(document, struct)
    # Each round repairs the first error. Candidates are copies of the document with a change at the
    # place of this error. The round takes the first candidate that has fewer errors than before.
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
    """Return the place about which no problem may be reported because of an error.

    Mostly this is the place of the error. But if the error is an unknown key that resembles no
    known key, it is the mapping around this key. Such a key may be a part of a value: YAML splits
    `{target: member(readers, 0)}` at its comma, into the target `member(readers` and the key `0)`.
    In this example no problem about the target may be reported.
    """
    is_split_value = error.is_unknown and error.meant is None and len(error.steps) > 1
    return error.steps[:-1] if is_split_value else error.steps


def _candidates(document: object, error: ShapeError) -> Iterator[_Document]:
    """Yield copies of a document in which the place of an error is changed.

    If the place is a key, the key is renamed or removed. Otherwise, or if this does not help, the
    place gets another value: one of the allowed values, or one of _STAND_INS.
    """
    # `holder` is the mapping or list around the wrong value, within the copy.
    *path, last = error.steps
    copy, holder = _copy_with_part(document, path)
    # Elements of a list are not removed, because the indexes of the elements after it would change.
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
    """Return True if a problem at `path` may be caused by the replacement at `steps`.

    This is so if the problem is at the place of the replacement or inside of it. It is also so if
    both are settings of the same section, or times of the same fault.
    """
    *parents, last = steps
    parent, place = path_text(parents), path_text(steps)
    if path == place or path.startswith((f"{place}.", f"{place}[")):  # at the place or below it
        return True
    if parents and parents[-1] == _SECTION:
        return path.startswith(f"{parent}.")
    return last in _TIMES and path in {f"{parent}.{key}" for key in _TIMES}


def path_text(steps: _Steps) -> str:
    """Return a place as problems show it, such as `faults[0].target`."""
    text = ""
    # An index gets brackets. A key gets a dot before it, unless it is the first step.
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
