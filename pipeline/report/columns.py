"""Columns: what is told of a row, and where: in a table of text, a chart's data, a tooltip.

One tuple of columns says all that a lane, or a table of a section, tells of its rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.charts.chart import Cell, TextTable


@dataclass(frozen=True, slots=True)
class Column:
    """One fact of a row. `value`: the row's column, or a function that returns the fact.

    Shape: `heading` is its name in a table of text, `key` in a chart's data, `tip` in a tooltip;
    an empty name leaves the fact out there.
    """

    value: str | Callable[[Any], Cell]  # Any: a table's row, or a struct of the summary
    heading: str = ""
    key: str = ""
    tip: str = ""
    numeric: bool = False

    def of(self, row: Any) -> Cell:  # noqa: ANN401 - see `value`
        """Return the fact of one row."""
        found: Cell = row[self.value] if isinstance(self.value, str) else self.value(row)
        return found


def named(*names: str) -> tuple[Column, ...]:
    """Return columns of a table of text that are named as those of the row."""
    return tuple(Column(name, name) for name in names)


def number(value: str | Callable[[Any], Cell], heading: str) -> Column:
    """Return a column of a table of text that is aligned right."""
    return Column(value, heading, numeric=True)


def moment(column: str, heading: str) -> Column:
    """Return a column of moments: seconds of the run's clock."""
    return number(lambda row: clock_text(row[column]), heading)


def text_table(
    columns: Sequence[Column],
    rows: Sequence[Any],
    *,
    limit: int | None = None,
    source: str = "",
    caption: str = "",
    folded: str | None = None,
) -> TextTable:
    """Return rows as a table of text; `limit` None: all, else a sentence says where the rest is.

    `source`: the name of the rows' table in the folder `tables`.
    """
    shown = [column for column in columns if column.heading or not column.key]
    kept = rows if limit is None else rows[:limit]
    rest = "" if limit is None else bounded(source, len(rows), limit)
    return TextTable(
        headings=tuple(column.heading for column in shown),
        rows=tuple(tuple(column.of(row) for column in shown) for row in kept),
        caption=f"{caption} {rest}".strip(),
        numeric=tuple(column.heading for column in shown if column.numeric),
        folded=folded,
    )


def data_of(columns: Sequence[Column], row: Any) -> dict[str, Cell]:  # noqa: ANN401 - as above
    """Return the facts of a row that a chart's data has, by their keys."""
    return {column.key: column.of(row) for column in columns if column.key}


def clock_text(time_us: int | None) -> str | None:
    """Return a moment of the run's clock as tables print it: seconds with three decimals."""
    return None if time_us is None else f"{time_us / 1_000_000:,.3f}"


def bounded(table: str, number: int, limit: int) -> str:
    """Return what a table of text says of rows that it leaves out."""
    if number <= limit:
        return ""
    return f"The first {limit:,} of {number:,} rows; all of them are in tables/{table}."
