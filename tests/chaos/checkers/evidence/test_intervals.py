"""Intervals of offsets behave like sets of offsets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chaos.checkers.evidence.intervals import IntervalSet

pieces = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=20,
)


@given(pieces, st.tuples(st.integers(0, 70), st.integers(0, 30)))
def test_intervals_equal_a_set_of_offsets(
    added: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    """The plain model checks add, total, covered and missing; no two intervals touch."""
    intervals = IntervalSet()
    model: set[int] = set()
    for start, end in added:
        intervals.add(start, end)
        model.update(range(start, end))
    start, end = asked[0], sum(asked)

    assert intervals.total == len(model)
    assert intervals.end == (max(model) + 1 if model else None)
    assert intervals.covered(start, end) == len(model & set(range(start, end)))
    missing = [offset for gap in intervals.missing(start, end) for offset in range(*gap)]
    assert missing == [offset for offset in range(start, end) if offset not in model]
    parts = list(intervals)
    assert all(left[1] < right[0] for left, right in pairwise(parts))


def test_consecutive_records_are_one_interval() -> None:
    """A long run must not grow the memory."""
    intervals = IntervalSet()
    for offset in range(10_000):
        intervals.add(offset, offset + 1)

    assert len(intervals) == 1
