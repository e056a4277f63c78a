"""Strips: lines of a chart that show how long each member needed for a phase of a failover.

A strip has a dot for each member, on a logarithmic axis of time. Beside the strip stand the name of
the phase and its figures. If some members did not need the phase, they have no time, and a note
counts them. If a time was measured with the clocks of two machines, it may be wrong by as much as
these clocks differ (`bound_us`).

Times are microseconds, and S is one second. The chart's data has a row for each mark that is drawn:

- `name`: the name and figures of the strip
- `range`: a line from the shortest to the longest time
- `dot`: the time of one member
- `bar`: the number of members in a part of the axis; many members have bars instead of dots
- `p50`, `p90`: the 50th and the 90th percentile
- `max`: the longest time
- `band`: the times that are shorter than the error between clocks

`axis_over` returns the axis on which the given strips are drawn.
"""

from collections import Counter

from pipeline.report.charts.strips import MAX_DOTS, Strip, axis_over, figures_text, strip_rows
from tests.support.builders.report_rows import S, distribution


def strip(*values_us: int | None, bound_us: int = 0, note: str = "") -> Strip:
    """Return the strip of the phase `accept` with one time per member; None means no time."""
    times = [(f"c-{index}", time) for index, time in enumerate(values_us) if time is not None]
    return Strip(
        name="accept",
        values=tuple(times),
        figures=distribution(values_us, bound_us=bound_us),
        subject="member",
        note=note,
    )


def desktop_text(shown: Strip) -> str:
    """Return the figures beside a strip on a desktop; a phone shows shorter figures."""
    text, _on_phone = figures_text(shown)
    return text


def marks(*strips: Strip) -> Counter[str]:
    """Return the number of marks of each kind in a chart of strips."""
    return Counter(row["mark"] for row in strip_rows(strips, axis_over(strips)))


def test_axis_shows_20_us_beside_8_s_and_begins_at_0() -> None:
    """Many load waits are 0, which has no logarithm, so the axis is linear near 0."""
    axis = axis_over([strip(0, 20, 8 * S)])
    assert axis.ticks == [0, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
    # `place` returns a position on the axis, from 0 (left) to 1 (right).
    assert axis.place(0) == 0
    assert 0 < axis.place(20) < 0.2
    assert 0.9 < axis.place(8 * S) < 1
    # The distances from 1 to 10 ms, from 10 to 100 ms, and from 100 ms to 1 s.
    steps = [axis.place(10 * time_us) - axis.place(time_us) for time_us in (1_000, 10_000, 100_000)]
    assert max(steps) - min(steps) < 0.01, "a time ten times as long is always one step further"


def test_axis_converts_places_back_into_values() -> None:
    """`value` is the inverse of `place`.

    The axis is cut into parts of equal length, and each part with members has a bar. `place` says
    in which part a member is. `value` says at which times the part, and so the bar, begins and
    ends.
    """
    axis = axis_over([strip(20, 8 * S)])
    for time_us in (0, 20, 5_000, 8 * S):
        rounding_error = 1e-6 * max(1, time_us)
        assert abs(axis.value(axis.place(time_us)) - time_us) <= rounding_error


def test_few_members_have_a_dot_each_and_many_are_counted_in_bars() -> None:
    """Twelve dots show a distribution; a thousand dots would cover each other and slow the page."""
    few, many = strip(*range(1, MAX_DOTS + 1)), strip(*range(1, 1_001))
    assert marks(few)["dot"] == MAX_DOTS
    assert marks(few)["bar"] == 0
    assert marks(many)["dot"] == 0
    bars = [row for row in strip_rows([many], axis_over([many])) if row["mark"] == "bar"]
    # The axis is cut into 100 parts, each with one bar at most.
    assert len(bars) <= 100
    # The tooltip of a bar says, for example, "1,000 members: 20 us to 30 us".
    numbers_of_members = [row["says"].split(" ")[0] for row in bars]
    counted = sum(int(number.replace(",", "")) for number in numbers_of_members)
    assert counted == 1_000, "every member is in one bar"


def test_dots_of_equal_values_do_not_hide_one_another() -> None:
    """Members that wait for the same event have equal times, so their dots are drawn apart."""
    twelve = strip(*[8 * S] * 12)
    rows = strip_rows([twelve], axis_over([twelve]))
    heights = [row["y"] for row in rows if row["mark"] == "dot"]  # pixels
    assert len(set(heights)) == 12
    # Dots may take 13 pixels above the line of their strip and 13 below.
    assert max(heights) - min(heights) <= 2 * 13


def test_values_below_the_clocks_error_are_drawn_at_it_with_a_note() -> None:
    """If two clocks differ by up to 1 ms, a measured time of 200 us may be any time below 1 ms."""
    strip_with_error = strip(200, 300, 5_000, bound_us=1_000)
    rows = strip_rows([strip_with_error], axis_over([strip_with_error]))
    dots = {row["from"] for row in rows if row["mark"] == "dot"}
    assert dots == {1_000, 5_000}
    assert any(row["says"] == "c-0: < 1 ms" for row in rows if row["mark"] == "dot")
    (band,) = [row for row in rows if row["mark"] == "band"]
    assert (band["from"], band["to"]) == (0, 1_000)
    # `figures_text` returns the text for a desktop, then the text for a phone.
    _, text_on_phone = figures_text(strip_with_error)
    assert text_on_phone == "p50 < 1 ms, max 5 ms"


def test_90th_percentile_is_shown_only_with_ten_samples() -> None:
    """The 90th percentile of two members would be the longest time under another name."""
    assert marks(strip(1, 2)) == Counter(name=1, range=1, dot=2, p50=1, max=1)
    ten = strip(*range(1, 11))
    assert marks(ten)["p90"] == 1
    text, text_on_phone = figures_text(ten)
    assert "p90" in text
    assert text_on_phone == "p50 5 us, max 10 us", "a phone has room for two figures"


def test_phase_that_no_member_needed_is_a_text_without_a_mark() -> None:
    """Without a rebalance, the phase `join` has no time; a mark at 0 would show a join of 0 us."""
    join = strip(None, None, note="no member had to")
    assert marks(join) == Counter(name=1)
    assert figures_text(join) == ("no member had to", "no member had to")


def test_time_of_0_has_no_unit_and_is_not_known_with_an_error_between_clocks() -> None:
    """`0 us` would look as if microseconds had been measured.

    With an error between clocks, a measured 0 only means that the time is less than this error.
    """
    assert desktop_text(strip(0, 5_000)) == "p50 0, max 5 ms; 2 members"
    assert desktop_text(strip(0, 5_000, bound_us=1_000)) == "p50 < 1 ms, max 5 ms; 2 members"


def test_one_member_is_singular() -> None:
    """The text ends with the number of members that have a time; the note counts the others."""
    assert desktop_text(strip(5_000)) == "p50 5 ms, max 5 ms; 1 member"
    some = strip(5_000, 6_000, None, note="1 did not have to")
    assert desktop_text(some).endswith("; 2 members, 1 did not have to")
