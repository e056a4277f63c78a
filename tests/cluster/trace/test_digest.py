"""The trail of a digest, from which one sees at what time two runs began to differ.

- The digest of a run is a hash over all rows of its trace (the recorded events).
- Two runs part at the time of the first row in which they differ.
- The trail is a text: a step, such as "1s", and a mark for each full step of the run.
- A mark is a few digits of the digest of all rows before its time.
- If there are more than MAX_MARKS marks, every second one is dropped, and the step doubles.
- `parted_between` compares two trails. It returns the times between which the runs parted.
"""

from hypothesis import given
from hypothesis import strategies as st

from cluster.trace.digest import MAX_MARKS, EventsOnly, TraceDigest, parted_between
from protocol.trace import TraceKind, TraceRow
from tests.support.builders.trace_rows import trace_row as row

SECOND = 1_000_000


def trail_of(times_us: list[int], *, other_at: int | None = None) -> str:
    """Return the trail of rows at these times. The rows from `other_at` on have another node."""
    digest = TraceDigest()
    for seq, time_us in enumerate(times_us):
        differs = other_at is not None and time_us >= other_at
        digest(row(time_us, "broker-1" if differs else "broker-0", seq=seq))
    return digest.trail()


def test_trail_has_one_mark_for_each_full_second() -> None:
    """If a second has no rows, its mark equals the mark of the second before."""
    step, *marks = trail_of([0, SECOND // 2, SECOND, 3 * SECOND]).split()

    assert step == "1s"
    assert len(marks) == 3
    # These are the marks of 1, 2 and 3 s. There is no row between the last two.
    assert marks[1] != marks[0]
    assert marks[2] == marks[1]


def test_thinned_trail_of_a_long_run_has_correct_marks() -> None:
    """After marks were dropped, each remaining mark still follows from all rows before its time."""
    long = trail_of([index * SECOND for index in range(200)])
    step, *marks = long.split()

    assert len(marks) <= MAX_MARKS
    assert step == "8s"  # 199 marks of 1 s were halved three times, to at most 32
    # The other run has the same rows up to 16 s, and then ends. Its last mark is that of 16 s,
    # which the long run has, too. There is no later mark to compare, so the runs part after 16 s,
    # and the second bound is None.
    shorter = trail_of([i * SECOND for i in range(17)])
    assert parted_between(long, shorter) == (16 * SECOND, None)


@given(
    st.lists(st.integers(0, 150 * SECOND), min_size=1, max_size=60).map(sorted),
    st.lists(st.integers(1, 300 * SECOND), max_size=20).map(sorted),
    st.data(),
)
def test_two_runs_part_between_the_times_that_their_trails_give(
    times: list[int], more: list[int], data: st.DataObject
) -> None:
    """The rows differ from a drawn time on, which must be between the two bounds.

    One run may be much longer than the other, so that the steps of the trails differ.
    """
    parts_at = data.draw(st.sampled_from(times))
    longer = times + [max(times) + later_us for later_us in more]
    bounds = parted_between(trail_of(times), trail_of(longer, other_at=parts_at))

    # None says that the runs differ only after the last mark that both trails have.
    if bounds is not None:
        begin_us, end_us = bounds
        assert begin_us <= parts_at
        assert end_us is None or parts_at < end_us


def test_equal_trails_give_no_parting_time() -> None:
    """The runs may still differ after the last mark."""
    assert parted_between(trail_of([0, SECOND]), trail_of([0, SECOND])) is None


def test_digest_without_messages_equals_that_of_a_run_without_message_tracing() -> None:
    """EventsOnly drops the rows about messages, and numbers the other rows of each node anew.

    So a run with message tracing gets the same digest as a run without.
    """
    seen: list[TraceRow] = []
    events_only = EventsOnly(seen.append)
    for trace_row in (
        row(0, seq=0),
        row(1, seq=1, kind=TraceKind.REQUEST_SENT),
        row(2, seq=2),
        row(2, "broker-1", seq=0, kind=TraceKind.RESPONSE_SENT),
        row(3, "broker-1", seq=1),
    ):
        events_only(trace_row)

    assert [(kept.node, kept.time_us, kept.seq) for kept in seen] == [
        ("broker-0", 0, 0),
        ("broker-0", 2, 1),
        ("broker-1", 3, 0),
    ]
