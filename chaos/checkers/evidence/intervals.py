"""IntervalSet: a set of offsets, stored as intervals.

A run may process millions of records, but mostly in order. So their offsets form a few intervals:
the offsets 0 to 999 and 1200 to 1999 are stored as [0, 1000) and [1200, 2000). As usual, the first
number of [start, end) is part of the interval, and the second is not.
"""

from bisect import bisect_left, bisect_right


class IntervalSet:
    """A set of offsets. Its intervals are in ascending order, and neither overlap nor touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self._starts)

    def __iter__(self) -> "zip[tuple[int, int]]":
        """Iterate over the intervals."""
        return zip(self._starts, self._ends, strict=True)

    @property
    def end(self) -> int | None:
        """End of the last interval; None if the set is empty."""
        return self._ends[-1] if self._ends else None

    @property
    def total(self) -> int:
        """Number of offsets in the set."""
        return sum(self._ends) - sum(self._starts)

    def covered(self, start: int, end: int) -> int:
        """Return the number of offsets of [start, end) in the set."""
        # Begin with the first interval that ends after `start`.
        first = bisect_right(self._ends, start)
        count = 0
        for index in range(first, len(self._starts)):
            if self._starts[index] >= end:
                break
            count += min(end, self._ends[index]) - max(start, self._starts[index])
        return count

    def add(self, start: int, end: int) -> None:
        """Add [start, end), and join it with the intervals that it overlaps or touches."""
        ends = self._ends
        if ends and ends[-1] == start:  # the case of nearly every call
            ends[-1] = end
            return
        # The intervals `first` to `last - 1` overlap or touch the new one: they end at `start` or
        # later, and start at `end` or earlier. One joined interval replaces them. If there is no
        # such interval, the new one is inserted at `first`.
        first = bisect_left(ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, ends[last - 1])
        self._starts[first:last] = [start]
        ends[first:last] = [end]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that are not in the set."""
        gaps = []
        # In the loop, `start` moves to the end of the part of [start, end) that was compared.
        for known_start, known_end in self:
            if known_end <= start:
                continue
            if known_start >= end:
                break
            if known_start > start:
                gaps.append((start, known_start))
            start = max(start, known_end)
        if start < end:
            gaps.append((start, end))
        return gaps
