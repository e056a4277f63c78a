"""The comparison of several runs on a terminal: a table with a column for each run.

Each function `page_*` makes up some runs, and returns the table that compares them. The last test
compares all these texts, each below the docstring of its function, with pages/comparison.txt, which
a person has reviewed. `summary_of("x/1", fault, ...)` makes the summary of a run with these faults.
Times are microseconds, and S is one second.
"""

import io

from rich.console import Console

from coordlab.views.comparison_view import print_comparison
from pipeline.summary.comparison import Comparison, compare_runs
from pipeline.summary.figures import FaultSummary, RunSummary
from tests.support.builders.report_rows import S, fault_summary, summary_of
from tests.support.harness.golden import Golden, sections


def crash(*, detect_s: int, gap_s: int, **changes: object) -> FaultSummary:
    """Return a crash that was detected after `detect_s` and left a commit gap of `gap_s`."""
    values = {"detect": [detect_s * S], "commit gap": [gap_s * S]}
    fields: dict[str, object] = {"kind": "crash", "members": 12, "partitions_moved": 1}
    return fault_summary(values=values, **(fields | changes))  # type: ignore[arg-type]


def printed(comparison: Comparison, *, width: int = 80) -> list[str]:
    """Return the lines that a terminal of this width shows."""
    shown = Console(file=io.StringIO(), width=width)
    print_comparison(shown, comparison)
    assert isinstance(shown.file, io.StringIO)
    return [line.rstrip() for line in shown.file.getvalue().splitlines()]


def page_of(summaries: list[RunSummary], names: list[str] | None = None) -> str:
    """Return the comparison of these runs as a terminal shows it."""
    return "\n".join(printed(compare_runs(summaries, names=names)))


def runs(count: int) -> list[RunSummary]:
    """Return runs: the commit gap of the first run is 9 s, of the second run 10 s, and so on."""
    return [summary_of(f"crash/{n}", crash(detect_s=8, gap_s=8 + n)) for n in range(1, count + 1)]


def page_each_column_has_a_letter_that_a_list_above_explains() -> str:
    """Names of runs are far too wide for a column's heading."""
    return page_of(runs(2), names=["session 6 s", "session 45 s"])


def page_rows_that_differ_have_a_mark_that_a_legend_explains() -> str:
    """The mark is a star, so that it needs no colour."""
    return page_of(
        [
            summary_of("x/1", crash(detect_s=8, gap_s=8)),
            summary_of("x/2", crash(detect_s=8, gap_s=16)),
        ]
    )


def page_runs_that_are_alike_have_no_mark_and_no_legend() -> str:
    """Without a mark a legend would be useless."""
    return page_of(
        [
            summary_of("x/1", crash(detect_s=8, gap_s=8)),
            summary_of("x/2", crash(detect_s=8, gap_s=8)),
        ]
    )


def page_figure_that_a_run_lacks_is_a_dash() -> str:
    """A zero would be the best value of all."""
    moved = fault_summary(values={"detect": [S], "join": [S]}, partitions_moved=1, members=3)
    return page_of([summary_of("x/1", moved), summary_of("x/2", crash(detect_s=8, gap_s=8))])


def test_columns_that_do_not_fit_continue_below() -> None:
    """The columns of eight runs, A to H, stand below each other if the terminal is narrow.

    At each width all values and headings are shown, and no cell is broken.
    """
    for width in (40, 60, 80, 120):
        lines = printed(compare_runs(runs(8)), width=width)
        assert max(map(len, lines)) <= width
        # A line has as many runs as fit: "commit gap max  9.00 s  10.00 s ...".
        shown_s: list[float] = []
        for line in lines:
            if "commit gap max" in line:
                _, values = line.split("max")
                shown_s += [float(value) for value in values.split(" s") if value.strip()]
        assert shown_s == [9, 10, 11, 12, 13, 14, 15, 16]
        # A line of headings has only the letters of columns.
        headings = "".join(line for line in lines if set(line.split()) <= set("ABCDEFGH"))
        for letter in "ABCDEFGH":
            assert letter in headings


def page_of_many_faults_only_what_differs_is_shown() -> str:
    """A rolling restart has a fault for each broker: 60 lines each would be too many."""
    names = [f"crash-{index}" for index in range(4)]
    first = summary_of("x/1", *(crash(detect_s=8, gap_s=8, fault=name) for name in names))
    second = summary_of("x/2", *(crash(detect_s=8, gap_s=16, fault=name) for name in names))
    return page_of([first, second])


def page_run_without_faults_is_compared_as_a_whole() -> str:
    """One run was interrupted before its fault."""
    return page_of([summary_of("x/1"), summary_of("x/2", crash(detect_s=8, gap_s=8))])


PAGES = (
    page_each_column_has_a_letter_that_a_list_above_explains,
    page_rows_that_differ_have_a_mark_that_a_legend_explains,
    page_runs_that_are_alike_have_no_mark_and_no_legend,
    page_figure_that_a_run_lacks_is_a_dash,
    page_of_many_faults_only_what_differs_is_shown,
    page_run_without_faults_is_compared_as_a_whole,
)


def test_pages_equal_the_reviewed_ones(golden: Golden) -> None:
    """A person reviews each change of an output, as its users will see it."""
    golden.check("pages/comparison.txt", sections(PAGES))
