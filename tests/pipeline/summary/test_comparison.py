"""The table that compares runs side by side, and marks the rows in which they differ.

For example, two runs with one crash each have the row

    detect p50    8.00 s    9.00 s

with the median time until the controller knew of the crash. A row is about one fault of each run,
or about the whole run. A column is about one run, or about all runs to which the user gave the same
name. If a column is about several runs, each cell has the median and the range of their values.
"""

import pytest

from pipeline.summary.comparison import (
    MAX_COLUMNS,
    Comparison,
    ComparisonRow,
    compare_runs,
    comparison_notes,
)
from pipeline.summary.comparison_cells import MAX_VALUES, cell_of, range_text
from pipeline.summary.figures import FaultSummary
from pipeline.summary.outcomes import Owners
from tests.support.builders.report_rows import GROUP, S, fault_summary, rebalances_of, summary_of

MS = 1_000
"""One millisecond in microseconds. S is one second in microseconds."""


def crash(detect_us: int, *gaps_us: int, **changes: object) -> FaultSummary:
    """Return the summary of a crash, which the controller notices after `detect_us`.

    `gaps_us` are the times for which some of the group's 12 members could not commit. All members
    stay in the group. `changes` replace fields of the fault.
    """
    values = {"detect": [detect_us], "commit gap": list(gaps_us)}
    fields: dict[str, object] = {"members": 12, "members_kept": 12, "partitions_moved": 1}
    return fault_summary(values=values, **fields | changes)  # type: ignore[arg-type]


def pause(detect_us: int, name: str) -> FaultSummary:
    """Return the summary of a pause of a node, with the same kinds of figures as a crash."""
    return crash(detect_us, fault=name, kind="pause")


def row(comparison: Comparison, label: str, fault: str | None = "crash") -> ComparisonRow:
    """Return the one row with this label and fault.

    `crash` is the title of a run's only crash. The rows about whole runs have the fault None.
    """
    (only_row,) = [row for row in comparison.rows if row.label == label and row.fault == fault]
    return only_row


def test_each_of_a_few_runs_has_a_column() -> None:
    """Two runs have two columns, in the order of the arguments."""
    comparison = compare_runs([summary_of("x/2", crash(8 * S)), summary_of("x/1", crash(9 * S))])
    assert [column.title for column in comparison.columns] == ["x/2", "x/1"]
    assert row(comparison, "detect p50").texts == ("8.00 s", "9.00 s")


def test_median_and_longest_are_separate_rows() -> None:
    """A comparison of medians alone would hide the member that waited longest."""
    comparison = compare_runs([summary_of("x/1", crash(8 * S, 100 * MS, 200 * MS, 900 * MS))])
    assert row(comparison, "commit gap p50").texts == ("200 ms",)
    assert row(comparison, "commit gap max").texts == ("900 ms",)
    # This row is in the table's part about gaps (times without service).
    assert row(comparison, "commit gap max").group == "gap"


def test_missing_value_is_not_zero() -> None:
    """A phase that no member needed has no duration. A 0 would look like the shortest duration."""
    with_rebalance = fault_summary(
        values={"detect": [8 * S], "join": [700 * MS]}, partitions_moved=1, members=12
    )
    comparison = compare_runs([summary_of("x/1", with_rebalance), summary_of("x/2", crash(8 * S))])
    assert row(comparison, "join p50").texts == ("700 ms", None)
    # Both runs have a crash, but only one has a rebalance: that is a difference.
    assert row(comparison, "join p50").differs


def test_full_comparison_has_every_figure_and_counts_zeros() -> None:
    """A count of 0 in one of several runs is a value: the range of the count begins at 0.

    `timeouts at old` counts the requests to the old coordinator that timed out.
    """
    runs = [
        summary_of(
            f"x/{number}",
            fault_summary(values={"timeouts at old": [count]}, partitions_moved=1, members=12),
        )
        for number, count in enumerate([0, 2, 5])
    ]
    comparison = compare_runs(runs, names=["x"] * 3, in_full=True)
    (cell,) = row(comparison, "timeouts at old max").cells
    assert cell is not None
    assert (cell.low, cell.median, cell.high, cell.missing) == (0, 2, 5, 0)
    assert range_text(cell, "count") == "2 (0 to 5)"
    # Without `in_full`, a comparison has only the most important figures.
    assert not any("timeouts" in row.name for row in compare_runs(runs).rows)
    # A row in which every run has 0 is left out.
    zeros = compare_runs(runs[:1], names=["x"], in_full=True)
    assert not any("timeouts" in row.name for row in zeros.rows)


def test_range_has_its_unit_once_if_both_ends_share_it() -> None:
    """Two ranges must fit side by side in 80 columns."""

    def printed(*values: int) -> str:
        cell = cell_of(values, "us", bound_us=0)
        assert cell is not None
        return range_text(cell, "us")

    assert printed(7 * S, 8 * S, 9 * S) == "8.00 s (7.00 to 9.00 s)"
    assert printed(0, 20 * MS, 2 * S) == "20 ms (0 to 2.00 s)"
    assert printed(850, 20 * MS, 2 * S) == "20 ms (850 us to 2.00 s)"
    assert printed(8 * S, 8 * S) == "8.00 s"


def test_faults_are_aligned_by_kind_and_order() -> None:
    """The second crash of one run is compared with the second crash of the other.

    A pause between two crashes does not change their numbers.
    """
    # The number in the id of a fault, such as crash-2, counts all faults of a run, from 0. The
    # numbers in the titles of the table, such as `crash 2`, count only the crashes, from 1.
    first = summary_of("x/1", crash(1 * S), pause(3 * S, "pause-1"), crash(2 * S, fault="crash-2"))
    second = summary_of("x/2", crash(5 * S), crash(6 * S, fault="crash-1"))
    comparison = compare_runs([first, second])
    assert comparison.faults == ("crash 1", "crash 2", "pause")
    assert row(comparison, "detect p50", fault="crash 2").texts == ("2.00 s", "6.00 s")
    assert row(comparison, "detect p50", fault="pause").texts == ("3.00 s", None)
    # A row is marked as different only if both runs have such a fault.
    assert not row(comparison, "detect p50", fault="pause").differs


def test_runs_without_a_common_kind_of_fault_are_aligned_by_order() -> None:
    """A user may compare a crash with a pause on purpose. Then their figures share the rows."""
    crashed, paused = summary_of("x/1", crash(8 * S)), summary_of("y/1", pause(9 * S, "pause-0"))
    comparison = compare_runs([crashed, paused])
    assert comparison.faults == ("fault",)
    assert row(comparison, "detect p50", fault="fault").texts == ("8.00 s", "9.00 s")


def test_columns_of_single_runs_or_of_two_runtimes_have_a_note() -> None:
    """A note tells the reader why a difference between two columns may mean nothing.

    - Two single runs may differ by chance. (A column of several runs has a range, and needs no
      note.)
    - Virtual time is not the time of real machines.
    """
    runs = [summary_of(f"x/{index}", crash(8 * S)) for index in range(4)]
    single = compare_runs(runs[:2])
    (note,) = comparison_notes(single, runtimes=["ray", "ray"])
    assert note.startswith("a column of one run is one throw")
    mixed = comparison_notes(single, runtimes=["ray", "virtual"])
    assert mixed[0].startswith("runs on ray and virtual stand beside each other")
    several = compare_runs(runs, names=["a", "a", "b", "b"])
    assert comparison_notes(several, runtimes=["ray"] * 4) == ()
    in_one_column = compare_runs(runs, names=["a"] * 4)
    assert comparison_notes(in_one_column, runtimes=["ray"] * 4) == ()


def test_runs_of_one_name_share_a_column_with_median_and_range() -> None:
    """The cell of several runs has their median, their range, and the number without a value.

    Here four runs have the name 9000, and one run has the name 18000.
    """
    named_runs = [
        ("9000", summary_of("x/0", crash(7 * S))),
        ("9000", summary_of("x/1", crash(8 * S))),
        ("9000", summary_of("x/2", crash(9 * S))),
        ("18000", summary_of("x/3", crash(17 * S))),
        ("9000", summary_of("x/4")),  # a run without a fault
    ]
    runs = [run for _, run in named_runs]
    comparison = compare_runs(runs, names=[name for name, _ in named_runs])
    assert [(column.title, len(column.runs)) for column in comparison.columns] == [
        ("9000", 4),
        ("18000", 1),
    ]
    # Unlike `range_text`, which saves space, these texts have the unit twice.
    assert row(comparison, "detect p50").texts == (
        "8.00 s (7.00 s to 9.00 s), 1 of 4 without",
        "17.00 s",
    )
    cell = row(comparison, "detect p50").cells[0]
    assert cell is not None
    # One of the four runs named 9000 had no fault, and therefore no value.
    assert (cell.runs, cell.missing, cell.values) == (3, 1, (7 * S, 8 * S, 9 * S))


def test_many_runs_without_names_are_grouped_by_experiment() -> None:
    """A table with a column for each of forty runs would be unreadable."""
    runs = [summary_of(f"x/{n}", crash(n * S)) for n in range(1, MAX_COLUMNS + 2)]
    comparison = compare_runs(runs)
    assert [column.title for column in comparison.columns] == ["x"]
    assert len(comparison.columns[0].runs) == MAX_COLUMNS + 1


def test_values_kept_for_a_chart_are_bounded_and_span_the_range() -> None:
    """A cell keeps only some of its values, so that a page with many runs stays small."""
    runs = [summary_of(f"x/{n}", crash((n + 1) * S)) for n in range(500)]
    cell = row(compare_runs(runs), "detect p50").cells[0]
    assert cell is not None
    assert len(cell.values) == MAX_VALUES
    assert (cell.values[0], cell.values[-1]) == (1 * S, 500 * S)


@pytest.mark.parametrize(
    ("times", "differs"),
    [
        pytest.param((8 * S, 8 * S + 900), False, id="900 us more"),
        pytest.param((8 * S, 8 * S + 390 * MS), False, id="less than 5 % more"),
        pytest.param((8 * S, 8 * S + 430 * MS), True, id="more than 5 % more"),
        pytest.param((200 * MS, 299 * MS), False, id="50 %, but less than 0.1 s more"),
        pytest.param((200 * MS, 300 * MS), True, id="50 % and 0.1 s more"),
    ],
)
def test_times_are_marked_from_5_percent_and_a_tenth_of_a_second_on(
    times: tuple[int, int], differs: bool
) -> None:
    """A difference is marked if it is at least 5 % and at least 0.1 s.

    If every row had a mark, no mark would catch the eye.
    """
    comparison = compare_runs(
        [summary_of(f"x/{number}", crash(detect_us)) for number, detect_us in enumerate(times)]
    )
    assert row(comparison, "detect p50").differs is differs


def test_times_within_the_clocks_error_are_not_marked_or_shown() -> None:
    """The clocks of several machines differ, here by up to 200 ms (`bound_us`).

    The times 210 and 390 ms differ by 180 ms, which may be only an error of the clocks. So they are
    not marked. A time of 9 ms is shown as `< 200 ms`, because it is smaller than the error.
    """

    def compared(*times_us: int, bound_us: int) -> ComparisonRow:
        """Return the row of `detect` of runs with these times."""
        faults = [
            fault_summary(values={"detect": [detect_us]}, bound_us=bound_us, partitions_moved=1)
            for detect_us in times_us
        ]
        runs = [summary_of(f"x/{number}", fault) for number, fault in enumerate(faults)]
        return row(compare_runs(runs), "detect p50")

    assert compared(210 * MS, 390 * MS, bound_us=0).differs
    assert not compared(210 * MS, 390 * MS, bound_us=200 * MS).differs
    assert compared(9 * MS, bound_us=200 * MS).texts == ("< 200 ms",)


def test_overlapping_ranges_are_not_marked() -> None:
    """If the ranges of two columns overlap, their medians may differ by chance."""

    def compared(a: list[int], b: list[int]) -> ComparisonRow:
        """Return the row of `detect` for runs named a and b, with these times in seconds."""
        runs = [
            summary_of(f"x/{number}", crash(seconds * S)) for number, seconds in enumerate(a + b)
        ]
        names = ["a"] * len(a) + ["b"] * len(b)
        return row(compare_runs(runs, names=names), "detect p50")

    assert not compared(a=[7, 8, 15], b=[8, 12, 13]).differs
    assert compared(a=[7, 8], b=[12, 13]).differs


def test_outcomes_are_counted_and_marked_when_they_differ() -> None:
    """A count has no threshold: one rebalance more is a difference."""
    without = crash(8 * S)
    with_one = crash(8 * S, rebalances=(rebalances_of(),), members_kept=11)
    comparison = compare_runs([summary_of("x/1", without), summary_of("x/2", with_one)])
    assert row(comparison, "rebalances").texts == ("0", "1")
    assert row(comparison, "rebalances").differs
    assert row(comparison, "members kept").texts == ("12", "11")
    assert not row(comparison, "members").differs


def test_figures_of_whole_runs_come_last_with_their_verdicts() -> None:
    """The verdict belongs to the run, not to one fault.

    So does the longest time in which two members owned the same partition (`Owners`).
    """
    owners = Owners(
        group=GROUP,
        partitions=12,
        first_coordinator=("broker-2", 0),
        first_consumers=("c-0",),
        second_coordinator=("broker-0", 1),
        second_consumers=("c-1",),
        from_us=64 * S,
        to_us=93 * S,
        longest_us=29 * S,
        records_both=4_674,
        healed_us=None,
    )
    runs = [summary_of("x/1", owners=(owners,)), summary_of("x/2")]
    comparison = compare_runs(runs, verdicts=["violated", None])
    assert row(comparison, "two owners at once max", fault=None).texts == ("29.00 s", "never")
    assert row(comparison, "two owners at once max", fault=None).differs
    assert row(comparison, "verdict", fault=None).texts == ("violated", None)
    assert {row.fault for row in comparison.rows} == {None}


def test_run_without_events_has_only_missing_values() -> None:
    """Only a run with events shows that there were never two coordinators."""
    comparison = compare_runs([summary_of("x/1"), summary_of("x/2", events=0, completed=False)])
    assert row(comparison, "two coordinators at once max", fault=None).texts == ("never", None)


def test_hundreds_of_faults_of_a_kind_are_grouped() -> None:
    """One row has all faults of the kind, and the value of each fault is one sample.

    The controller noticed the first crash after 1 s, the second after 2 s, and so on. So the median
    of the 100 crashes is 50 s. Members are added up: 100 crashes with 12 members each are 1,200.
    """
    many = [crash(seconds * S, seconds * S, fault=f"crash-{seconds}") for seconds in range(1, 101)]
    comparison = compare_runs([summary_of("x/1", *many), summary_of("x/2", crash(8 * S))])
    assert comparison.faults == ("crash, all",)
    assert row(comparison, "detect p50", fault="crash, all").texts == ("50.00 s", "8.00 s")
    assert row(comparison, "detect max", fault="crash, all").texts == ("100.00 s", "8.00 s")
    assert row(comparison, "members", fault="crash, all").texts == ("1,200", "12")


def test_number_of_names_must_equal_the_number_of_runs() -> None:
    """With one name too few, each later run would get the wrong name."""
    with pytest.raises(ValueError, match="2 runs have 1 names"):
        compare_runs([summary_of("x/1"), summary_of("x/2")], names=["a"])
