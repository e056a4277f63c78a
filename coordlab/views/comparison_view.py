"""Prints several runs side by side, for `analyze` and `report`.

    compared:
      A  3 brokers: 2026-01-31T12-00-00.000Z
      B  5 brokers: 2026-01-31T12-05-00.000Z

    after crash-0
                       A       B
    *  commit gap max  9.42 s  5.10 s

A column is one run, or several runs with the same settings. The heading of a column is only a
letter, so that many columns fit into the terminal. Columns that do not fit follow in another table
below.
"""

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordlab.console import print_lines, print_table
from pipeline.summary.comparison import Comparison, ComparisonRow, comparison_notes
from pipeline.summary.comparison_cells import NOTABLE_PERCENT, NOTABLE_US
from pipeline.summary.figures import duration_text
from pipeline.summary.story import GROUP_HEADINGS

_MARK = "*"
"""This mark stands before a figure that differs between columns."""
_MISSING = "-"
"""This text stands in a column that does not have the figure."""
_GAP_WIDTH = 2
"""Number of blanks after each column."""
_MAX_FAULTS_IN_FULL = 2
"""The largest number of faults for which all figures are printed.

If there are more faults, figures after a fault are left out if they are equal in all columns. The
comparison page has all figures.
"""
_MAX_RUNS_NAMED = 3
"""The largest number of runs of a column that the list above the tables names."""


def print_comparison(
    console: Console, comparison: Comparison, runtimes: Iterable[str] = ()
) -> None:
    """Print what the letters mean, then the figures after each fault and over the whole runs.

    `runtimes`: the runtime of each run. If they differ, a note warns the reader.
    """
    letters = [_column_letters(index) for index in range(len(comparison.columns))]
    console.print()
    print_lines(console, ["compared:"], style="bold")
    for letter, column in zip(letters, comparison.columns, strict=True):
        # The title of a column may be the name of its run. Then the name is not repeated.
        runs = ", ".join(run for run in column.runs[:_MAX_RUNS_NAMED] if run != column.title)
        left_out = len(column.runs) - _MAX_RUNS_NAMED
        if left_out > 0:
            runs += f" and {left_out} more"
        explanation = f"{column.title}: {runs}" if runs else column.title
        print_lines(console, [f"  {letter}  {explanation}"])
    show_equal_figures = len(comparison.faults) <= _MAX_FAULTS_IN_FULL
    for fault in (*comparison.faults, None):  # None stands for the whole runs
        rows = [row for row in comparison.rows if row.fault == fault]
        shown = rows
        if fault is not None and not show_equal_figures:
            shown = [row for row in rows if row.differs]
        if rows:
            title = "the runs as a whole" if fault is None else f"after {fault}"
            _print_block(console, title, shown, letters)
        if len(shown) < len(rows):
            alike = len(rows) - len(shown)
            print_lines(console, [f"  {alike} figures are alike: the page has them"], style="dim")
    if any(row.differs for row in comparison.rows):
        legend = (
            f"{_MARK} differs in effect: {NOTABLE_PERCENT} % apart, and times by "
            f"{duration_text(NOTABLE_US)} at least, or missing ({_MISSING}) in one of them"
        )
        print_lines(console, [legend], style="dim")
    if any(len(column.runs) > 1 for column in comparison.columns):
        legend = "of several runs: the median over runs, in brackets the range"
        print_lines(console, [legend], style="dim")
    if any(row.statistic == "sum" and row.unit == "us" for row in comparison.rows):
        print_lines(console, ["sums over partitions are partition-seconds"], style="dim")
    notes = comparison_notes(comparison, runtimes)
    print_lines(console, (f"note: {note}" for note in notes), style="cyan")


def _print_block(
    console: Console, title: str, rows: Sequence[ComparisonRow], letters: Sequence[str]
) -> None:
    """Print the figures after one fault, or of the whole runs, in as many tables as are needed."""
    console.print()
    print_lines(console, [title], style="bold")
    for indexes in _columns_of_each_table(rows, letters, console.width):
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP_WIDTH, 0, 0))
        table.add_column("", no_wrap=True)
        table.add_column("")
        for index in indexes:
            table.add_column(letters[index], justify="right")
        for row, heading in _with_headings(rows):
            if heading is not None:
                table.add_row("", Text(heading, style="underline"))
            mark = Text(_MARK if row.differs else "", style="bold yellow")
            texts = [row.texts[index] or _MISSING for index in indexes]
            table.add_row(mark, row.label, *texts, style="" if row.differs else "dim")
        print_table(console, table)


def _with_headings(rows: Sequence[ComparisonRow]) -> Iterator[tuple[ComparisonRow, str | None]]:
    """Yield each row with the heading to print above it, or with None.

    The figures are divided into groups, such as the phases and the gaps. (These are no consumer
    groups.) Only the first row of each group has a heading.
    """
    previous_group = None
    for row in rows:
        is_first = row.group != previous_group
        yield row, GROUP_HEADINGS.get(row.group) if is_first else None
        previous_group = row.group


def _columns_of_each_table(
    rows: Sequence[ComparisonRow], letters: Sequence[str], width: int
) -> Iterator[list[int]]:
    """Yield the columns of each table: first [0, 1, 2], then [3, 4], for example.

    A table has as many columns as fit into `width`, but at least one.
    """
    # Each table begins with a column of marks and a column of labels. The headings of groups are in
    # the column of labels, too.
    labels = [row.label for row in rows] + list(GROUP_HEADINGS.values())
    first_columns_width = len(_MARK) + _GAP_WIDTH + max(map(cell_len, labels)) + _GAP_WIDTH
    columns: list[int] = []
    room = width - first_columns_width
    for index, letter in enumerate(letters):
        texts = [row.texts[index] or _MISSING for row in rows]
        needed = max(map(cell_len, [letter, *texts])) + _GAP_WIDTH
        if columns and needed > room:
            yield columns
            columns = []
            room = width - first_columns_width
        columns.append(index)
        room -= needed
    if columns:
        yield columns


def _column_letters(index: int) -> str:
    """Return the heading of a column, as in a spreadsheet: A, B ... Z, AA, AB ..."""
    rest, last = divmod(index, 26)
    letter = chr(ord("A") + last)
    if rest == 0:
        return letter
    # A to Z came before the two-letter headings, so the rest begins with 1: column 26 (AA) has the
    # rest 1 and the last letter A.
    return _column_letters(rest - 1) + letter
