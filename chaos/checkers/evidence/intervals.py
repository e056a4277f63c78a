"""A set of offsets, kept as intervals: how much was processed, without remembering each record."""

from bisect import bisect_left, bisect_right


class IntervalSet:
    """Disjoint intervals [start, end) in ascending order, never touching each other."""

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
        """The end of the last interval; None if it is empty."""
        return self._ends[-1] if self._ends else None

    @property
    def total(self) -> int:
        """How many offsets it holds."""
        return sum(self._ends) - sum(self._starts)

    def covered(self, start: int, end: int) -> int:
        """Return how many offsets of [start, end) it holds."""
        first = bisect_right(self._ends, start)
        count = 0
        for index in range(first, len(self._starts)):
            if self._starts[index] >= end:
                break
            count += min(end, self._ends[index]) - max(start, self._starts[index])
        return count

    def add(self, start: int, end: int) -> None:
        """Add [start, end), joining what touches it."""
        ends = self._ends
        if ends and ends[-1] == start:  # what nearly every record does
            ends[-1] = end
            return
        first = bisect_left(ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, ends[last - 1])
        self._starts[first:last] = [start]
        ends[first:last] = [end]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that it does not hold."""
        gaps = []
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
