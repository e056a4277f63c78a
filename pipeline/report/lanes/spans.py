"""Calculations with intervals of time, for the lanes of a report.

A lane is a chart along the time axis of the page, in which intervals are bars. `slots` arranges
bars that overlap. If there are too many intervals to draw, the lane shows how many intervals there
are at each moment. `concurrent` counts them. Times are in microseconds on the run's clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

MAX_STEPS = 1_200
"""Maximum number of steps in the outline of an area. A screen has hardly more pixels side by side,
so no visible step is lost.
"""

Row = TypeVar("Row", bound=Mapping[str, Any])  # Any: a table's row


@dataclass(frozen=True, slots=True)
class Steps:
    """Several counts over time. `counts[i]` holds from `times_us[i]` until the next time.

    For example, the times are (0, 5, 9), and the counts are ((1, 0), (2, 0), (1, 1)). Then there
    are two intervals of the first kind and none of the second kind from 5 to 9.
    """

    times_us: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def highest(self) -> tuple[int, ...]:
        """The maximum of each count: (2, 1) in the example; () if there are no times."""
        return tuple(max(values) for values in zip(*self.counts, strict=True))


def slots(intervals: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of a row for each interval, from 0. Intervals of one row do not overlap.

    Each interval gets the first free row. For (0, 5), (3, 8) and (5, 9), the result is [0, 1, 0]:
    the second interval overlaps the first interval, while the third interval only touches it.
    `intervals` can be in any order, and the result is in the same order.
    """
    chosen = [0] * len(intervals)
    free_from: list[int] = []  # the end of the last interval in each row
    for index in sorted(range(len(intervals)), key=lambda index: intervals[index]):
        start, end = intervals[index]
        # The first row that is free at `start`. If all rows are occupied, it is a new row.
        free_rows = (row for row, busy_until in enumerate(free_from) if busy_until <= start)
        row = next(free_rows, len(free_from))
        if row == len(free_from):
            free_from.append(end)
        free_from[row] = end
        chosen[index] = row
    return chosen


def longest_first(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return the `limit` rows with the greatest `length_us`, because short bars are hard to see."""
    return sorted(rows, key=lambda row: -(row["length_us"] or 0))[:limit]


def free(intervals: Iterable[tuple[int, int]], from_us: int, to_us: int) -> list[tuple[int, int]]:
    """Return the parts of [from_us, to_us) that no interval covers.

    Between 0 and 10, the intervals (2, 4) and (3, 6) leave (0, 2) and (6, 10).
    """
    stretches = []
    covered_until = from_us
    for start, end in sorted(intervals):
        if min(start, to_us) > covered_until:
            stretches.append((covered_until, min(start, to_us)))
        covered_until = max(covered_until, end)
    if covered_until < to_us:
        stretches.append((covered_until, to_us))
    return stretches


def concurrent(intervals: Iterable[tuple[int, int]], *, from_us: int, to_us: int) -> Steps:
    """Return how many intervals there are at each moment from `from_us` to `to_us`.

    For (1, 4) and (2, 6) between 0 and 9, the times are (0, 1, 2, 4, 6, 9), and the counts are
    ((0,), (1,), (2,), (1,), (0,), (0,)).
    """
    # Time -> by how much the number of intervals changes at this time.
    changes: dict[int, int] = {from_us: 0}
    for start, end in intervals:
        shown_from = max(start, from_us)
        shown_to = min(end, to_us)
        # An interval that lies outside of the time from `from_us` to `to_us` does not count.
        if shown_from < shown_to:
            changes[shown_from] = changes.get(shown_from, 0) + 1
            changes[shown_to] = changes.get(shown_to, 0) - 1
    changes.setdefault(to_us, 0)

    # Sum up the changes, from the first time to the last.
    times = []
    counts = []
    count = 0
    for time_us in sorted(changes):
        count += changes[time_us]
        times.append(time_us)
        counts.append((count,))
    return Steps(tuple(times), tuple(counts))


def join_steps(*series: Steps) -> Steps:
    """Return one Steps with the counts of all `series`, in their order.

    The result has a step for each time at which any count changes. For example, one series changes
    from 1 to 2 at time 5, and another series changes from 0 to 1 at time 9. Then the counts are
    (1, 0), (2, 0) and (2, 1). All series must begin at the same time.
    """
    times = sorted({time_us for steps in series for time_us in steps.times_us})
    # For each series, the index of its last step at or before `time_us`.
    positions = [0] * len(series)
    counts = []
    for time_us in times:
        # Move the positions on to `time_us`.
        for index, steps in enumerate(series):
            following = positions[index] + 1
            while following < len(steps.times_us) and steps.times_us[following] <= time_us:
                positions[index] = following
                following += 1

        # The counts that hold at `time_us`: those of the first series, then of the second series,
        # and so on.
        counts.append(
            tuple(
                count
                for steps, position in zip(series, positions, strict=True)
                for count in steps.counts[position]
            )
        )
    return Steps(tuple(times), tuple(counts))


def thinned(steps: Steps, limit: int = MAX_STEPS) -> Steps:
    """Return the steps, or about `limit` of them if there are more.

    The time is cut into equal parts. Of each part, the result has the first step and the last step,
    and for each count the steps with its lowest and its highest value. So no peak disappears.
    """
    if len(steps.times_us) <= limit:
        return steps

    begin, end = steps.times_us[0], steps.times_us[-1]
    kept_per_part = 2 + 2 * len(steps.counts[0])
    parts = max(1, limit // kept_per_part)
    indexes_of_parts: dict[int, list[int]] = {}
    for index, time_us in enumerate(steps.times_us):
        # The step at `end` would be in a part of its own, so `min` puts it into the last part.
        part = min(parts - 1, (time_us - begin) * parts // max(1, end - begin))
        indexes_of_parts.setdefault(part, []).append(index)

    kept_indexes: set[int] = set()
    for indexes in indexes_of_parts.values():
        kept_indexes.update((indexes[0], indexes[-1]))
        for column in range(len(steps.counts[0])):
            values = [steps.counts[index][column] for index in indexes]
            by_value = sorted(zip(values, indexes, strict=True))
            _, index_of_lowest = by_value[0]
            _, index_of_highest = by_value[-1]
            kept_indexes.update((index_of_lowest, index_of_highest))

    order = sorted(kept_indexes)
    return Steps(
        tuple(steps.times_us[index] for index in order),
        tuple(steps.counts[index] for index in order),
    )
