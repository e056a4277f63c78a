"""Two runs that should be equal but are not: a short text tells when they began to differ.

The digest of a run is a hash of all its recorded events. Two runs with one seed must have the same
digest. If they do not, the user asks at what time they parted. But the events of an old run may be
gone. Therefore a run also keeps the trail of its digest, which is a short text:

    1s 3fa2 77b0 c41d

This run has a mark for each full second: a few digits of the digest of all events before 1 s,
before 2 s, and before 3 s. Of two runs with the trails "1s 3fa2 77b0 c41d" and "1s 3fa2 9e05 8812"
`parted_between` says that they parted between 1 s and 2 s. A long run would have too many marks. So
when there are more than MAX_MARKS, every second mark is dropped, and the step becomes 2 s, and so
on.
"""

from hypothesis import given
from hypothesis import strategies as st

from cluster.trace.digest import MAX_MARKS, EventsOnly, TraceDigest, parted_between
from protocol.trace import TraceKind, TraceRow
from tests.support.builders.trace_rows import trace_row as row

SECOND = 1_000_000


def trail_of(times_us: list[int], *, differs_from_us: int | None = None) -> str:
    """Return the trail of a run with events at these times.

    From `differs_from_us` on, its events differ from those of a run without this argument.
    """
    digest = TraceDigest()
    for seq, time_us in enumerate(times_us):
        differs = differs_from_us is not None and time_us >= differs_from_us
        digest(row(time_us, "broker-1" if differs else "broker-0", seq=seq))
    return digest.trail()


def test_trail_has_one_mark_for_each_full_second() -> None:
    """If there are no events in a second, its mark is the same as that of the second before."""
    step, *marks = trail_of([0, SECOND // 2, SECOND, 3 * SECOND]).split()

    assert step == "1s"
    assert len(marks) == 3
    mark_of_1_s, mark_of_2_s, mark_of_3_s = marks
    assert mark_of_2_s != mark_of_1_s
    assert mark_of_3_s == mark_of_2_s


def test_thinned_trail_of_a_long_run_has_correct_marks() -> None:
    """A mark that remains is still that of all events before its time.

    The test compares a run of 199 s, whose step is 8 s, with a run of 16 s, whose step is 1 s. Both
    have the same events before 16 s. So both have the same mark of 16 s. `parted_between` says that
    they parted after 16 s, and knows no time before which they parted (None).
    """
    long_trail = trail_of([index * SECOND for index in range(200)])
    step, *marks = long_trail.split()

    assert len(marks) <= MAX_MARKS
    assert step == "8s"  # 199 marks were halved three times, to at most 32
    short_trail = trail_of([index * SECOND for index in range(17)])
    assert parted_between(long_trail, short_trail) == (16 * SECOND, None)


@given(
    st.lists(st.integers(0, 150 * SECOND), min_size=1, max_size=60).map(sorted),
    st.lists(st.integers(1, 300 * SECOND), max_size=20).map(sorted),
    st.data(),
)
def test_two_runs_part_between_the_times_that_their_trails_give(
    times_us: list[int], later_by_us: list[int], data: st.DataObject
) -> None:
    """The events differ from a time on that is drawn at random. It must be between the two bounds.

    The second run has events at `times_us`, and later ones. It may be much longer than the first
    run, so that their trails have different steps.
    """
    parted_us = data.draw(st.sampled_from(times_us))
    longer_us = times_us + [max(times_us) + by_us for by_us in later_by_us]
    bounds = parted_between(trail_of(times_us), trail_of(longer_us, differs_from_us=parted_us))

    # None says that all marks are equal. The runs then differ only after the last mark.
    if bounds is not None:
        begin_us, end_us = bounds
        assert begin_us <= parted_us
        assert end_us is None or parted_us < end_us


def test_equal_trails_give_no_parting_time() -> None:
    """The runs are equal, or they differ after the last mark."""
    assert parted_between(trail_of([0, SECOND]), trail_of([0, SECOND])) is None


def test_digest_without_messages_equals_that_of_a_run_without_message_tracing() -> None:
    """A run may record its messages, too, but this must not change its digest.

    EventsOnly passes on all events except those of messages. Each event has a number, `seq`,
    counted per node. EventsOnly counts anew, as if there were no messages in between.
    """
    passed_on: list[TraceRow] = []
    events_only = EventsOnly(passed_on.append)
    for trace_row in (
        row(0, seq=0),
        row(1, seq=1, kind=TraceKind.REQUEST_SENT),
        row(2, seq=2),
        row(2, "broker-1", seq=0, kind=TraceKind.RESPONSE_SENT),
        row(3, "broker-1", seq=1),
    ):
        events_only(trace_row)

    assert [(event.node, event.time_us, event.seq) for event in passed_on] == [
        ("broker-0", 0, 0),
        ("broker-0", 2, 1),
        ("broker-1", 3, 0),
    ]
