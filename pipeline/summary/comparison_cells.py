"""Cells of a comparison: the values of a figure over the runs of a column, and their text.

A row of a comparison is one figure. A column is one run, or several runs with the same settings.
The cell of a row and a column holds the values that the figure has in the runs of the column. If no
run of the column has the figure, the cell is None, never 0. Lengths are in microseconds.

The error of the clocks is the difference between the clocks of a run's machines. A length below
this error is not certain. A figure is disturbed if a machine was lost or silent, without a planned
fault, in the time that the figure is about. MARK follows a disturbed figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.summary.figures import MARK, length_text

MAX_VALUES = 60
"""Maximum number of values that a cell keeps for a chart."""
NOTABLE_PERCENT = 5
NOTABLE_US = 100_000
"""The smallest differences that count. Two figures differ if they are NOTABLE_PERCENT apart or
more. Two times must also be NOTABLE_US apart, because no user notices a smaller difference.
"""

NEVER = "never"
"""Text of a cell whose length is 0 because the measured thing did not happen."""
Unit = Literal["us", "count", "text"]
"""Unit of a row: microseconds, a number of things, or words such as the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure of one column, in the unit of the row.

    - `text`: the text to show.
    - `median`, `low`, `high`: the median (of two middle values, the lower), the least and the
      greatest value of the runs that have a value.
    - `values`: the values of these runs, sorted. If there are more than MAX_VALUES, a choice in
      equal steps from the least to the greatest.
    - `runs`, `missing`: numbers of runs with and without a value.
    - `bound_us`: the error of the clocks; 0 if it does not matter for this figure.
    """

    text: str
    median: int | None = None  # None in a cell of text
    low: int | None = None
    high: int | None = None
    values: tuple[int, ...] = ()
    runs: int = 1
    missing: int = 0
    bound_us: int = 0
    disturbed: bool = False  # a machine was away by accident in the time of one of the values


def cell_of(values: Sequence[int | None], unit: Unit, bound_us: int) -> Cell | None:
    """Return the cell of a figure from the values of its runs; None if no run has a value."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    median, low, high = middle(known), known[0], known[-1]
    missing = len(values) - len(known)

    text = _value_text(median, unit, bound_us)
    if low != high:
        text += f" ({_value_text(low, unit, bound_us)} to {_value_text(high, unit, bound_us)})"
    if missing:
        text += f", {missing} of {len(values)} without"

    return Cell(
        text=text,
        median=median,
        low=low,
        high=high,
        values=_even_choice(known),
        runs=len(known),
        missing=missing,
        bound_us=bound_us,
    )


def _even_choice(values: Sequence[int]) -> tuple[int, ...]:
    """Return at most MAX_VALUES of sorted values, in equal steps from the first to the last."""
    if len(values) <= MAX_VALUES:
        return tuple(values)
    last = len(values) - 1
    return tuple(values[step * last // (MAX_VALUES - 1)] for step in range(MAX_VALUES))


def marked(cell: Cell | None) -> Cell | None:
    """Return a cell whose text ends with the mark of a disturbed figure."""
    if cell is None:
        return None
    return replace(cell, text=f"{cell.text}{MARK}", disturbed=True)


def text_cell_of(values: Sequence[str | None]) -> Cell | None:
    """Return the cell of a figure that is a word: one run's word, or how often each word occurs."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    missing = len(values) - len(known)
    if len(values) == 1:
        text = known[0]
    else:
        counts = {value: known.count(value) for value in dict.fromkeys(known)}
        text = ", ".join(f"{value} {count}" for value, count in counts.items())
        text += f", none {missing}" if missing else ""
    return Cell(text=text, runs=len(known), missing=missing)


def _value_text(value: int, unit: Unit, bound_us: int) -> str:
    """Return a value in its unit as text; `bound_us` is the error of the clocks."""
    return length_text(value, bound_us=bound_us) if unit == "us" else f"{value:,}"


def range_text(cell: Cell, unit: Unit) -> str:
    """Return the median, and in brackets the range if the runs differ: `7.79 s (7.02 to 8.94 s)`.

    A unit that both ends of the range share is printed once.
    """
    # A cell of text has no numbers. NEVER stands for a length of 0, which must not be printed.
    if cell.median is None or cell.low is None or cell.high is None or cell.text == NEVER:
        return cell.text
    median, low, high = (
        _value_text(value, unit, cell.bound_us) for value in (cell.median, cell.low, cell.high)
    )
    mark = MARK if cell.disturbed else ""
    if cell.low == cell.high:
        return f"{median}{mark}"
    # The text of a value is a number, and a unit after a space if the value has one.
    low_number, _, low_unit = low.rpartition(" ")
    _, _, high_unit = high.rpartition(" ")
    if low_unit == high_unit:
        low = low_number
    return f"{median} ({low} to {high}){mark}"


def middle(values: Sequence[int]) -> int:
    """Return the median of sorted values; of two middle values, the lower."""
    return values[(len(values) - 1) // 2]


def differs(cells: Sequence[Cell | None], unit: Unit) -> bool:
    """Return whether columns differ: a column lacks the figure, or two columns are far apart.

    Two columns are far apart if their medians differ by NOTABLE_PERCENT or more, and their ranges
    do not overlap. Medians of times must also differ by NOTABLE_US and by the clocks' error.
    """
    known = [cell for cell in cells if cell is not None]
    if len(cells) < 2:
        return False
    # If some columns lack the figure, they differ from the others. If all lack it, they are alike.
    if len(known) < len(cells):
        return bool(known)
    medians = [cell.median for cell in known if cell.median is not None]
    if not medians:  # cells of text
        return False
    low, high = min(medians), max(medians)
    # First, the medians must be far enough apart. Equal medians are not, even if both are 0, for
    # which the comparison of percentages would be true.
    if high == low or 100 * (high - low) < NOTABLE_PERCENT * high:
        return False
    if unit == "us" and high - low < max(NOTABLE_US, *(cell.bound_us for cell in known)):
        return False
    # Then, two of the ranges must not overlap: the highest beginning must be above the lowest end.
    # `or 0` only satisfies the type checker, because a cell with a median has both ends.
    return max(cell.low or 0 for cell in known) > min(cell.high or 0 for cell in known)
