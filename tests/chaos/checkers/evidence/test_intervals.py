"""An IntervalSet behaves like a set of offsets, and needs less memory.

An IntervalSet stores the offsets 0, 1, 2, 7 and 8 as the intervals (0, 3) and (7, 9). As in
`range`, the end of an interval is not part of it.
"""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chaos.checkers.evidence.intervals import IntervalSet

# Lists of intervals (start, end). The starts are at most 60, so that many intervals overlap.
intervals_to_add = st.lists(
    st.builds(
        lambda start, length: (start, start + length), st.integers(0, 60), st.integers(1, 12)
    ),
    max_size=20,
)


@given(intervals_to_add, st.integers(0, 70), st.integers(0, 30))
def test_intervals_equal_a_set_of_offsets(
    added: list[tuple[int, int]], start: int, length: int
) -> None:
    """Each method of IntervalSet agrees with a plain set of offsets, the model.

    The test calls `missing` and `covered` with the offsets from `start` to `start + length`. In
    addition, there is a gap between any two intervals, because IntervalSet joins intervals that
    overlap or touch.
    """
    intervals = IntervalSet()
    model: set[int] = set()
    for added_start, added_end in added:
        intervals.add(added_start, added_end)
        model.update(range(added_start, added_end))
    end = start + length

    assert intervals.total == len(model)
    assert intervals.end == (max(model) + 1 if model else None)
    assert intervals.covered(start, end) == len(model & set(range(start, end)))
    missing: list[int] = []
    for gap_start, gap_end in intervals.missing(start, end):
        missing.extend(range(gap_start, gap_end))
    assert missing == [offset for offset in range(start, end) if offset not in model]
    # Neighbouring intervals do not touch.
    assert all(left_end < right_start for (_, left_end), (right_start, _) in pairwise(intervals))


def test_consecutive_records_are_one_interval() -> None:
    """A long run adds the offsets of its records one by one.

    The set must not take more and more memory.
    """
    intervals = IntervalSet()
    for offset in range(10_000):
        intervals.add(offset, offset + 1)

    assert len(intervals) == 1
