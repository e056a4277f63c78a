"""What passes of the shrinker are made of: leave out some of several, find the least of a value.

Each is a generator that yields candidates and is sent whether they still fail; it returns what is
left. `Edit`s say what a candidate is: they change one place of an experiment.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from chaos.experiment.structs import Experiment
from chaos.exploration.shrink.edits import with_fault, with_group, with_topic

T = TypeVar("T")
Steps = Generator[Experiment, bool, None]
Reduction = Generator[Experiment, bool, Experiment]
Edit = Callable[[Experiment, T], Experiment]
"""Returns an experiment with a value in the place that it is about."""

LADDER_US = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 45, 60, 90, 120)
)
"""What times are shortened to: a person remembers them. The least is what a real cluster can tell
from nothing: there, to inject a fault takes some ten milliseconds."""


def fewer(
    current: Experiment, items: Sequence[T], edit: Edit[tuple[T, ...]], *, at_once: int = 1
) -> Reduction:
    """Leave out all of `items`, halves, quarters and at last single ones, or `at_once` of them."""
    kept = tuple(items)
    size = len(kept)
    while size >= at_once:
        start, left_out = 0, False
        while start < len(kept):
            less = (*kept[:start], *kept[start + size :])
            candidate = edit(current, less)
            if (yield candidate):
                kept, current, left_out = less, candidate, True
            else:
                start += size
        # What could not be spared beside the others may be spared without them.
        if not (size == at_once and left_out):
            size //= 2
    return current


def least(current: Experiment, values: Sequence[int], edit: Edit[int]) -> Reduction:
    """Find the least of rising `values`, all below the present one, that still fails.

    The least is tried first, then half way: what fails with one value mostly does with more.
    """
    low, high = 0, len(values)
    best, position = current, 0
    while low < high:
        candidate = edit(current, values[position])
        if (yield candidate):
            best, high = candidate, position
        else:
            low = position + 1
        position = (low + high) // 2
    return best


def least_with_room(current: Experiment, time_us: int, edit: Edit[int]) -> Reduction:
    """Find the shortest time that still fails, and take one half as long again, if that fails too.

    What is just long enough in virtual time is a race on a real cluster. A time that has no room
    below `time_us`, the present one, is not tried: shrunk once more, nothing changes.
    """
    rungs = tuple(rung for rung in LADDER_US if room_for(rung) < time_us)
    shortest = yield from least(current, rungs, edit)
    for rung in rungs:
        if edit(current, rung) == shortest != current:
            roomy = edit(current, room_for(rung))
            if (yield roomy):
                return roomy
    return shortest


def room_for(time_us: int) -> int:
    """Return the first rung of the ladder that is half as long again, or more."""
    return next((rung for rung in LADDER_US if 2 * rung >= 3 * time_us), LADDER_US[-1])


def below(time_us: int) -> tuple[int, ...]:
    """Return the rungs of the ladder below `time_us`."""
    return tuple(rung for rung in LADDER_US if rung < time_us)


# -- edits -------------------------------------------------------------------------------------


def fault_field(
    index: int, field: str, written: Callable[[Any], object] = lambda it: it
) -> Edit[Any]:
    """Return the edit of one field of the fault in the place `index`, `written` as in a file."""
    return lambda now, value: with_fault(
        now, index, replace(now.faults[index], **{field: written(value)})
    )


def group_field(name: str, field: str) -> Edit[Any]:
    """Return the edit of one field of a group."""
    return lambda now, value: with_group(now, name, replace(now.groups[name], **{field: value}))


def topic_field(name: str, field: str) -> Edit[Any]:
    """Return the edit of one field of a topic."""
    return lambda now, value: with_topic(now, name, replace(now.topics[name], **{field: value}))


def late_field(
    name: str, index: int, field: str, written: Callable[[Any], object] = lambda it: it
) -> Edit[Any]:
    """Return the edit of one field of the late members in the place `index` of a group."""

    def edit(now: Experiment, value: Any) -> Experiment:  # noqa: ANN401 - whatever the field holds
        group = now.groups[name]
        late = group.late_members
        changed = replace(late[index], **{field: written(value)})
        return with_group(
            now, name, replace(group, late_members=(*late[:index], changed, *late[index + 1 :]))
        )

    return edit
