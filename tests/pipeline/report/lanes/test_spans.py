"""How intervals of time become bars or lines in a lane, a chart over the time of a run.

A few intervals are drawn as bars: `slots` distributes them over rows, so that the bars of a row do
not overlap. Many intervals are drawn as a line in steps, which shows the number of intervals at
each time. For example, `Steps((0, 10), ((1,), (2,)))` is a line with the value 1 from time 0 on and
2 from time 10 on. `Steps((0, 10), ((1, 7), (2, 8)))` are two lines that change at the same times.
"""

import random

from pipeline.report.lanes.spans import (
    Steps,
    concurrent,
    free,
    join_steps,
    longest_first,
    slots,
    thinned,
)


def test_slots_of_touching_intervals_share_a_row() -> None:
    """An interval may end where the next begins; this must not look like an overlap."""
    assert slots([(10, 20), (0, 10), (20, 30)]) == [0, 0, 0]


def test_slots_of_overlapping_intervals_never_share_a_row() -> None:
    """Overlapping bars of one row would hide each other."""
    rng = random.Random(1)
    # Try fifty random sets of intervals.
    for _ in range(50):
        intervals = []
        for _ in range(rng.randrange(1, 20)):
            start = rng.randrange(100)
            intervals.append((start, start + rng.randrange(1, 40)))

        row_of = slots(intervals)
        for index, (start, end) in enumerate(intervals):
            for earlier in range(index):
                other_start, other_end = intervals[earlier]
                # Two intervals overlap if each of them starts before the end of the other.
                if other_start < end and start < other_end:
                    assert row_of[index] != row_of[earlier]
        # A set needs as many rows as the largest number of intervals at the same time. This number
        # is reached at the start of an interval, so it is enough to look at the starts.
        most_at_once = max(
            sum(start <= time < end for start, end in intervals) for time, _ in intervals
        )
        assert max(row_of) + 1 == most_at_once, "no more rows than needed"


def test_free_time_is_what_the_intervals_leave() -> None:
    """`free(intervals, 0, 60)` returns the parts of the range 0 to 60 that no interval covers.

    A lane shows these parts, for example, as the time without a coordinator. An interval outside of
    the range has no effect.
    """
    assert free([(10, 20), (15, 30), (40, 50)], 0, 60) == [(0, 10), (30, 40), (50, 60)]
    assert free([(0, 60)], 0, 60) == []
    assert free([(70, 80)], 0, 60) == [(0, 60)]


def test_concurrent_counts_the_intervals_at_each_time() -> None:
    """From 20 to 30 three intervals hold. The interval that ends at 99 is cut off at 60."""
    steps = concurrent([(10, 30), (20, 30), (20, 99)], from_us=0, to_us=60)
    assert steps.times_us == (0, 10, 20, 30, 60)
    assert steps.counts == ((0,), (1,), (3,), (1,), (0,))


def test_joined_steps_have_every_count_at_every_change() -> None:
    """A chart of stacked areas needs all counts at each time at which one of them changes.

    The first line stays at 1 until 10, so the joined steps repeat this 1 at 5, when the other line
    changes.
    """
    changes_at_10 = Steps((0, 10), ((1,), (2,)))
    changes_at_5_and_20 = Steps((0, 5, 20), ((7,), (8,), (9,)))
    assert join_steps(changes_at_10, changes_at_5_and_20) == Steps(
        (0, 5, 10, 20), ((1, 7), (1, 8), (2, 8), (2, 9))
    )


def test_thinned_steps_keep_the_highest_and_lowest_peak() -> None:
    """A reader must see a moment in which all members were without service, however short."""
    rng = random.Random(2)
    # A line that jumps up and down at random, with one highest and one lowest peak.
    counts = [rng.randrange(100) for _ in range(20_000)]
    counts[12_345] = 1_000
    counts[777] = -1
    steps = Steps(tuple(range(20_000)), tuple((count,) for count in counts))

    few = thinned(steps, 400)  # at most 400 of the 20,000 steps
    assert len(few.times_us) <= 400
    # Both peaks, the first and the last step remain, in the order of time.
    assert (1_000,) in few.counts
    assert (-1,) in few.counts
    assert (few.times_us[0], few.times_us[-1]) == (0, 19_999)
    assert list(few.times_us) == sorted(few.times_us)


def test_few_steps_are_not_thinned() -> None:
    """Few enough steps to draw are returned unchanged."""
    steps = Steps((0, 1, 2), ((1,), (2,), (3,)))
    assert thinned(steps, 3) is steps


def test_longest_first_of_many_rows_omits_the_shortest() -> None:
    """The shortest bars are the first to be omitted, because a reader hardly sees them."""
    rows = [{"length_us": length} for length in (5, 1, 9, 7)]
    assert [row["length_us"] for row in longest_first(rows, 2)] == [9, 7]
