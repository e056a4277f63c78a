"""Runs side by side on a terminal: narrow and wide, few and many, with and without differences."""

import io

from rich.console import Console

from coordlab.views.comparison_view import print_comparison
from pipeline.summary.comparison import Comparison, compare_runs
from pipeline.summary.figures import FaultSummary, RunSummary
from tests.support.builders.report_rows import S, fault_summary, summary_of


def crash(detect_s: int, gap_s: int, **changes: object) -> FaultSummary:
    values = {"detect": [detect_s * S], "commit gap": [gap_s * S]}
    given: dict[str, object] = {"kind": "crash", "members": 12, "partitions_moved": 1}
    return fault_summary(values=values, **given | changes)  # type: ignore[arg-type]


def printed(comparison: Comparison, *, width: int = 80) -> list[str]:
    shown = Console(file=io.StringIO(), width=width)
    print_comparison(shown, comparison)
    assert isinstance(shown.file, io.StringIO)
    return [line.rstrip() for line in shown.file.getvalue().splitlines()]


def runs(count: int) -> list[RunSummary]:
    return [summary_of(f"crash/{n}", crash(8, 8 + n)) for n in range(1, count + 1)]


def test_each_column_has_a_letter_that_is_told_above() -> None:
    """Names of runs are far too wide to stand over a column."""
    lines = printed(compare_runs(runs(2), names=["session 6 s", "session 45 s"]))
    assert lines[1:4] == [
        "compared:",
        "  A  session 6 s: crash/1",
        "  B  session 45 s: crash/2",
    ]
    gap = next(line for line in lines if "commit gap max" in line)
    assert gap.split() == ["*", "commit", "gap", "max", "9.00", "s", "10.00", "s"]


def test_what_differs_is_marked_and_said_how() -> None:
    """A star, so that it is seen without colour."""
    lines = printed(compare_runs([summary_of("x/1", crash(8, 8)), summary_of("x/2", crash(8, 16))]))
    marked = [line for line in lines if line.startswith("*  ")]
    assert [line.split("  ")[1] for line in marked] == ["commit gap p50", "commit gap max"]
    assert any(line.startswith("* differs in effect: ") for line in lines)


def test_runs_that_are_alike_have_no_mark_and_no_legend() -> None:
    """Nothing to explain where nothing is marked."""
    lines = printed(compare_runs([summary_of("x/1", crash(8, 8)), summary_of("x/2", crash(8, 8))]))
    assert not [line for line in lines if line.startswith("*")]


def test_figure_that_a_run_lacks_is_a_dash() -> None:
    """Not a zero, which would be the best of all."""
    moved = fault_summary(values={"detect": [S], "join": [S]}, partitions_moved=1, members=3)
    lines = printed(compare_runs([summary_of("x/1", moved), summary_of("x/2", crash(8, 8))]))
    join = next(line for line in lines if "join p50" in line)
    assert join.split() == ["*", "join", "p50", "1.00", "s", "-"]


def test_columns_that_do_not_fit_go_on_below() -> None:
    """Eight runs in 40 columns: no cell is broken, every value is there."""
    for width in (40, 60, 80, 120):
        lines = printed(compare_runs(runs(8)), width=width)
        assert max(map(len, lines)) <= width
        gaps = [line for line in lines if "commit gap max" in line]
        values = [word for line in gaps for word in line.split("max")[1].split(" s")]
        assert [float(value) for value in values if value.strip()] == [
            float(8 + n) for n in range(1, 9)
        ]
        headings = "".join(line for line in lines if set(line.split()) <= set("ABCDEFGH"))
        for letter in "ABCDEFGH":
            assert letter in headings


def test_of_many_faults_only_what_differs_is_shown() -> None:
    """A rolling restart has a fault for each broker: 60 lines each help nobody."""
    first = summary_of("x/1", *(crash(8, 8, fault=f"crash-{n}") for n in range(4)))
    second = summary_of("x/2", *(crash(8, 16, fault=f"crash-{n}") for n in range(4)))
    lines = printed(compare_runs([first, second]))
    assert sum("commit gap max" in line for line in lines) == 4
    assert not [line for line in lines if "detect" in line]
    assert sum("figures are alike" in line for line in lines) == 4


def test_run_without_faults_is_compared_as_a_whole() -> None:
    """A run that broke off before its fault beside one that did not."""
    lines = printed(compare_runs([summary_of("x/1"), summary_of("x/2", crash(8, 8))]))
    assert "the runs as a whole" in lines
    assert "after fault" in lines
