"""Building blocks of shrink passes: leave out some of several items, find the least value.

Shrinking makes an experiment smaller, as long as it still fails (its run has the same violation).
Each building block is a generator. It yields smaller experiments (candidates). The caller plays
each candidate, and sends True if it still fails. At its end the generator returns the smallest
experiment that fails. For example, this tries to get along with fewer than five brokers:

    current = yield from least(current, range(1, 5), with_brokers)

The last argument is an Edit, a function that makes the experiment with a given number of brokers.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from chaos.experiment.structs import Experiment
from chaos.exploration.shrink.edits import with_fault, with_group, with_topic

T = TypeVar("T")
Steps = Generator[Experiment, bool, None]
"""Generator of a pass. It yields candidates, and gets True for each candidate that still fails."""
Reduction = Generator[Experiment, bool, Experiment]
"""Generator of a building block: like Steps, and returns the smallest experiment that fails."""
Edit = Callable[[Experiment, T], Experiment]
"""Function that returns the experiment with another value at one place, such as a duration."""

LADDER_US = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 45, 60, 90, 120)
)
"""Durations and times to try: round numbers that are easy to remember.

The shortest duration is 0.1 s. On a real cluster the injection of a fault takes some ten
milliseconds, so there a shorter duration would have the same effect as none.
"""


def fewer(
    current: Experiment, items: Sequence[T], edit: Edit[tuple[T, ...]], *, at_once: int = 1
) -> Reduction:
    """Leave out as many of `items` as possible.

    First all items are left out together, then each half of them, each quarter, and so on, down to
    `at_once` items at a time.
    """
    # `current` is always an experiment that fails, and its items are `needed`. In each round of the
    # outer loop, the items before `start` have been tried.
    needed = tuple(items)
    size = len(needed)
    while size >= at_once:
        start, left_out = 0, False
        while start < len(needed):
            remaining = (*needed[:start], *needed[start + size :])
            candidate = edit(current, remaining)
            if (yield candidate):
                needed, current, left_out = remaining, candidate, True
            else:
                start += size
        # The last size (`at_once`) is repeated until no more item is left out. For example, an
        # item may have been needed only as long as a later item was there, which is now left out.
        if not (size == at_once and left_out):
            size //= 2
    return current


def least(current: Experiment, values: Sequence[int], edit: Edit[int]) -> Reduction:
    """Find the least of `values` with which the experiment still fails.

    `values` are in ascending order, and all are below the present value. The least value is tried
    first. Then a binary search follows, because an experiment that fails with one value mostly
    fails with larger values, too.
    """
    # The experiment does not fail with the values before index `low`, and it fails with the value
    # at index `high`. At first `high` is the index after the last value, which stands for the
    # present value of the experiment.
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
    """Find the shortest time with which the experiment fails, and add a reserve to it.

    With the reserve, the time is about 1.5 times as long. A time that is just enough in virtual
    time would often be too short on a real cluster. If the experiment does not fail with the longer
    time, it keeps the shortest time.

    `time_us` is the present time. A shorter time is tried only if it is below the present time even
    with its reserve. Otherwise the time would change again each time an experiment is shrunk.
    """
    durations = tuple(duration for duration in LADDER_US if room_for(duration) < time_us)
    shortest = yield from least(current, durations, edit)
    for duration in durations:
        # Find the duration with which `shortest` was made. If the experiment fails with no shorter
        # time, `shortest` is equal to `current`, and the second comparison is False for every
        # duration.
        if edit(current, duration) == shortest != current:
            with_reserve = edit(current, room_for(duration))
            if (yield with_reserve):
                return with_reserve
    return shortest


def room_for(time_us: int) -> int:
    """Return the first value of LADDER_US that is at least 1.5 times `time_us`.

    If there is no such value, return the last value of LADDER_US.
    """
    return next((duration for duration in LADDER_US if 2 * duration >= 3 * time_us), LADDER_US[-1])


def below(time_us: int) -> tuple[int, ...]:
    """Return the values of LADDER_US below `time_us`."""
    return tuple(duration for duration in LADDER_US if duration < time_us)


# -- edits -------------------------------------------------------------------------------------


def fault_field(
    index: int, field: str, written: Callable[[Any], object] = lambda it: it
) -> Edit[Any]:
    """Return the edit of one field of the fault at position `index`.

    `written` turns a value of the pass, such as 2,000,000 us, into the field's form, such as `2s`.
    """
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
    """Return the edit of one field of the late members at position `index` of a group.

    `written` has the same meaning as in `fault_field`.
    """

    def edit(now: Experiment, value: Any) -> Experiment:  # noqa: ANN401 - a field of any type
        group = now.groups[name]
        late = group.late_members
        changed = replace(late[index], **{field: written(value)})
        return with_group(
            now, name, replace(group, late_members=(*late[:index], changed, *late[index + 1 :]))
        )

    return edit
