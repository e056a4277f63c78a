"""The cells of a comparison of runs: what a column shows for a figure, and whether columns differ.

A comparison has a row for each figure, such as the longest commit gap. A column is one run, or
several runs with the same settings. So a cell shows one value, or the median and the range of
several: `7.79 s (7.02 s to 8.94 s)`. A cell is None, and never 0, if no run of the column has the
figure. Times are in microseconds.

If a run used several machines, their clocks differ a little. This difference is the `bound_us` of a
cell: a time that is shorter is not certain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.summary.figures import MARK, length_text

MAX_VALUES = 60
"""Maximum number of values that a cell keeps. A chart draws them as dots."""
NOTABLE_PERCENT = 5
NOTABLE_US = 100_000
"""The smallest difference of two medians that counts: 5 %. Two times must also be 0.1 s apart,
because no user notices a smaller difference.
"""

NEVER = "never"
"""Text of a cell with a time of 0. It says that the event of the row, such as two owners of a
partition, did not happen.
"""
Unit = Literal["us", "count", "text"]
"""Unit of a row: microseconds, a number of things, or words such as the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure of one column, in the unit of the row.

    - `text`: what is shown, such as `7.79 s (7.02 s to 8.94 s), 2 of 20 without`.
    - `runs`, `missing`: how many runs of the column have a value, and how many have none.
    - `median`, `low`, `high`: the median, the least and the greatest value of the runs. All three
      are None in a cell of words, such as a verdict.
    - `values`: the sorted values of the runs. If there are more than MAX_VALUES, only MAX_VALUES of
      them are kept, in equal steps from the least to the greatest.
    - `bound_us`: the largest difference between the clocks of a run; 0 if it does not matter for
      this figure.
    - `disturbed`: True if a machine was away by accident while one of the values was measured.
    """

    text: str
    median: int | None = None
    low: int | None = None
    high: int | None = None
    values: tuple[int, ...] = ()
    runs: int = 1
    missing: int = 0
    bound_us: int = 0
    disturbed: bool = False


def cell_of(values: Sequence[int | None], unit: Unit, bound_us: int) -> Cell | None:
    """Return a cell with the values of the runs of a column; None if no run has a value."""
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
    """Return at most MAX_VALUES of the sorted values, in equal steps from the first to the last."""
    if len(values) <= MAX_VALUES:
        return tuple(values)
    last = len(values) - 1
    return tuple(values[step * last // (MAX_VALUES - 1)] for step in range(MAX_VALUES))


def marked(cell: Cell | None) -> Cell | None:
    """Return the cell as disturbed: its text ends with MARK. None stays None."""
    if cell is None:
        return None
    return replace(cell, text=f"{cell.text}{MARK}", disturbed=True)


def text_cell_of(values: Sequence[str | None]) -> Cell | None:
    """Return a cell with the words of the runs of a column, such as their verdicts.

    If the column has one run, the text is the run's word: `PASS`. If it has several runs, the text
    tells how often each word occurs, in the order of the runs: `PASS 18, VIOLATED 1, none 1`.
    Returns None if no run has a word.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    missing = len(values) - len(known)
    if len(values) == 1:
        return Cell(text=known[0], runs=1, missing=0)
    words_in_order = dict.fromkeys(known)
    counts = [f"{word} {known.count(word)}" for word in words_in_order]
    if missing:
        counts.append(f"none {missing}")
    return Cell(text=", ".join(counts), runs=len(known), missing=missing)


def _value_text(value: int, unit: Unit, bound_us: int) -> str:
    """Return a value in its unit as text."""
    return length_text(value, bound_us=bound_us) if unit == "us" else f"{value:,}"


def range_text(cell: Cell, unit: Unit) -> str:
    """Return the text of a cell in a shorter form: `7.79 s (7.02 to 8.94 s)`.

    The short form does not tell how many runs have no value. If both ends of the range have the
    same unit, it is printed once.
    """
    # A cell of words has no numbers. A cell with the text NEVER shows no number, either.
    if cell.median is None or cell.low is None or cell.high is None or cell.text == NEVER:
        return cell.text
    median = _value_text(cell.median, unit, cell.bound_us)
    low = _value_text(cell.low, unit, cell.bound_us)
    high = _value_text(cell.high, unit, cell.bound_us)
    mark = MARK if cell.disturbed else ""
    if cell.low == cell.high:
        return f"{median}{mark}"
    # A text such as `7.02 s` has its unit behind a space. The text of a count has no space.
    low_number, _, low_unit = low.rpartition(" ")
    _, _, high_unit = high.rpartition(" ")
    if low_unit == high_unit:
        low = low_number
    return f"{median} ({low} to {high}){mark}"


def middle(values: Sequence[int]) -> int:
    """Return the median of sorted values; if there are two middle values, the lower one."""
    return values[(len(values) - 1) // 2]


def differs(cells: Sequence[Cell | None], unit: Unit) -> bool:
    """Return whether columns differ so much in a figure that a reader should see it.

    Columns differ if some columns have the figure and others lack it, or if two columns are far
    apart. Two columns are far apart if both conditions hold:

    - Their medians differ by NOTABLE_PERCENT or more. Medians of times must also differ by
      NOTABLE_US, and by more than the difference between the clocks.
    - Their ranges do not overlap: all runs of the one column are below all runs of the other.
    """
    if len(cells) < 2:
        return False
    known = [cell for cell in cells if cell is not None]
    some_columns_lack_it = len(known) < len(cells)
    if some_columns_lack_it:
        return len(known) > 0  # if all columns lack the figure, they do not differ
    medians = [cell.median for cell in known if cell.median is not None]
    if not medians:  # these are cells of words
        return False
    lowest, highest = min(medians), max(medians)
    if highest == lowest:  # also if all medians are 0, of which there are no percents
        return False
    if 100 * (highest - lowest) < NOTABLE_PERCENT * highest:
        return False
    largest_bound_us = max(cell.bound_us for cell in known)
    if unit == "us" and highest - lowest < max(NOTABLE_US, largest_bound_us):
        return False
    # If the highest beginning of a range is above the lowest end of a range, these two ranges do
    # not overlap.
    beginnings = [cell.low for cell in known if cell.low is not None]
    ends = [cell.high for cell in known if cell.high is not None]
    return max(beginnings) > min(ends)
