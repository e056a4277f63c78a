"""Several runs side by side on a terminal: a row for each figure.

A column is one run, or several runs with the same settings. The headings of columns are letters, so
that the columns stay narrow; a list above the tables explains the letters. Columns that do not fit
into the terminal's width follow in another table below.

A ComparisonRow is one figure, with a text for each column. The figure is about the time after one
fault. If `fault` is None, the figure is about the whole runs. In this module, the place of a column
is its number, counted from 0.
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
"""Mark of a figure that differs between columns."""
_MISSING = "-"
"""Text for a column without the figure."""
_GAP = 2
"""Blanks behind each column."""
_MAX_FAULTS_IN_FULL = 2
"""With more faults than this, only those figures after a fault are shown that differ between
columns. The comparison page has all of them."""
_MAX_RUNS_NAMED = 3
"""Limit of the runs of one column that the list of letters names."""


def print_comparison(
    console: Console, comparison: Comparison, runtimes: Iterable[str] = ()
) -> None:
    """Print the list of columns, then a table for each fault and one for the whole runs.

    `runtimes`: the runtime of each run, for the notes on the comparison.
    """
    letters = [_letters(place) for place in range(len(comparison.columns))]
    console.print()
    print_lines(console, ["compared:"], style="bold")
    for letter, column in zip(letters, comparison.columns, strict=True):
        # The title of a column can be the name of one of its runs. This name is not repeated.
        runs = ", ".join(run for run in column.runs[:_MAX_RUNS_NAMED] if run != column.title)
        left_out = len(column.runs) - _MAX_RUNS_NAMED
        runs += f" and {left_out} more" if left_out > 0 else ""
        explanation = f"{column.title}: {runs}" if runs else column.title
        print_lines(console, [f"  {letter}  {explanation}"])
    in_full = len(comparison.faults) <= _MAX_FAULTS_IN_FULL
    for fault in (*comparison.faults, None):  # None: figures of the whole runs
        rows = [row for row in comparison.rows if row.fault == fault]
        # If there are many faults, equal figures after a fault are left out.
        shown = [row for row in rows if in_full or row.differs or fault is None]
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
    """Print one block of figures, in several tables if its columns do not fit side by side."""
    console.print()
    print_lines(console, [title], style="bold")
    for places in _fitting(rows, letters, console.width):
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
        table.add_column("", no_wrap=True)
        table.add_column("")
        for place in places:
            table.add_column(letters[place], justify="right")
        for row, group in _with_groups(rows):
            if group is not None:
                table.add_row("", Text(group, style="underline"))
            mark = Text(_MARK if row.differs else "", style="bold yellow")
            texts = (row.texts[place] or _MISSING for place in places)
            table.add_row(mark, row.label, *texts, style="" if row.differs else "dim")
        print_table(console, table)


def _with_groups(rows: Sequence[ComparisonRow]) -> Iterator[tuple[ComparisonRow, str | None]]:
    """Yield each row with the heading that goes before it, or with None.

    A `group` is a group of figures, not of consumers. Its first row has a heading.
    """
    group_before = None
    for row in rows:
        is_first = row.group != group_before and row.group in GROUP_HEADINGS
        yield row, GROUP_HEADINGS[row.group] if is_first else None
        group_before = row.group


def _fitting(
    rows: Sequence[ComparisonRow], letters: Sequence[str], width: int
) -> Iterator[list[int]]:
    """Yield the places of the columns of each table.

    A table has as many columns as fit into `width`, but at least one.
    """
    # The headings of groups are in the same column as the labels.
    labels = [row.label for row in rows] + list(GROUP_HEADINGS.values())
    # Each table begins with the columns of marks and of labels.
    leading = len(_MARK) + _GAP + max(map(cell_len, labels)) + _GAP
    fitting: list[int] = []  # places of the columns of the present table
    room = width - leading
    for place, letter in enumerate(letters):
        texts = (row.texts[place] or _MISSING for row in rows)
        # The width of this column with the gap behind it.
        needed = max([cell_len(letter), *map(cell_len, texts)]) + _GAP
        if fitting and needed > room:
            yield fitting
            fitting, room = [], width - leading
        fitting.append(place)
        room -= needed
    if fitting:
        yield fitting


def _letters(place: int) -> str:
    """Return the heading of a column, as in a spreadsheet: A, B ... Z, AA, AB ..."""
    before, last = divmod(place, 26)
    letter = chr(ord("A") + last)
    # Minus 1, because these numerals have no zero: place 26 is AA, not BA.
    return letter if before == 0 else _letters(before - 1) + letter
