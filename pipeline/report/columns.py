"""Columns: the facts that the report shows about each row of a table.

A chart shows the same fact in up to three places: in its data, in its tooltips, and in the text
table beneath it. So a fact is described once, by a Column:

    Column("broker", heading="coordinator", key="w", tip="coordinator")

This Column takes the fact from the row's column `broker`. The fact has the heading `coordinator` in
the text table, the key `w` in the data of the chart, and the title `coordinator` in the tooltip.
The columns of a table that belongs to no chart have only a heading.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.charts.chart import Cell, TextTable


@dataclass(frozen=True, slots=True)
class Column:
    """One fact about a row.

    If one of the names `heading`, `key` and `tip` is empty, the fact is left out in that place.
    There is one exception: a column that has neither a heading nor a key is in the text table. This
    is the first column of the table, whose cells name the rows, so that it needs no heading.
    """

    value: str | Callable[[Any], Cell]  # Any: a table's row, or a struct of the summary
    """The name of a column of the row, or a function that returns the fact about a row."""
    heading: str = ""
    """The fact's name in a text table."""
    key: str = ""
    """The fact's name in the data of a chart."""
    tip: str = ""
    """The fact's name in a tooltip."""
    numeric: bool = False
    """True if the column of the text table is aligned right."""

    def of(self, row: Any) -> Cell:  # noqa: ANN401 - see `value`
        """Return the fact about one row, for example the cell `broker` of the row."""
        fact: Cell = row[self.value] if isinstance(self.value, str) else self.value(row)
        return fact


def named(*names: str) -> tuple[Column, ...]:
    """Return columns of a text table that have the same names as the columns of the rows."""
    return tuple(Column(name, name) for name in names)


def number(value: str | Callable[[Any], Cell], heading: str) -> Column:
    """Return a right-aligned column of a text table."""
    return Column(value, heading, numeric=True)


def moment(column: str, heading: str) -> Column:
    """Return a column of moments, in seconds on the run's clock. `column` has microseconds."""
    return number(lambda row: clock_text(row[column]), heading)


def text_table(
    columns: Sequence[Column],
    rows: Sequence[Any],
    *,
    limit: int | None = None,
    source: str = "",
    caption: str = "",
    folded: str | None = None,
    blocks: Sequence[int] = (),
) -> TextTable:
    """Return rows as a text table.

    - `limit`: maximum number of rows of the text table; None for no limit. If rows are left out, a
      sentence in the caption says that all rows are in the Parquet table `source`.
    - `caption`, `folded`, `blocks`: as in TextTable. `blocks` must not be combined with a limit.
    """
    # A column without heading and key is shown, because it has the names of the rows.
    shown = [column for column in columns if column.heading or not column.key]
    shown_rows = rows
    note = ""
    if limit is not None:
        shown_rows = rows[:limit]
        note = note_on_left_out(source, len(rows), limit)
    return TextTable(
        headings=tuple(column.heading for column in shown),
        rows=tuple(tuple(column.of(row) for column in shown) for row in shown_rows),
        caption=f"{caption} {note}".strip(),
        numeric=tuple(column.heading for column in shown if column.numeric),
        folded=folded,
        blocks=tuple(blocks),
    )


def data_of(columns: Sequence[Column], row: Any) -> dict[str, Cell]:  # noqa: ANN401 - as above
    """Return the facts about a row for a chart's data, by their keys."""
    return {column.key: column.of(row) for column in columns if column.key}


def clock_text(time_us: int | None) -> str | None:
    """Return a time of the run's clock as text, in seconds: `12.500`."""
    return None if time_us is None else f"{time_us / 1_000_000:,.3f}"


def note_on_left_out(table: str, count: int, limit: int) -> str:
    """Return the sentence on the rows that a text table leaves out; "" if it leaves none out."""
    if count <= limit:
        return ""
    return f"The first {limit:,} of {count:,} rows; all of them are in tables/{table}."
