"""Two traces side by side where they part."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.results.trace_diff import NodeParting, Parting
from coordlab.console import print_lines
from coordlab.views.row_view import clock, row_words
from protocol.trace import TraceRow

if TYPE_CHECKING:
    from coordlab.commands.diff.execution import Difference, Side

_MAX_NODES = 10
_NO_MORE = "(no more)"


def print_difference(console: Console, difference: "Difference") -> None:
    """Print whether two traces are equal, and where they part if not."""
    one, other, parts = difference.one, difference.other, difference.parts
    print_lines(console, [f"A: {_told(one)}", f"B: {_told(other)}"])
    if parts is None:
        print_lines(console, [f"equal: {len(one.rows):,} rows"], style="bold green")
        return
    _print_exact(console, parts)
    if not difference.by_time:
        _print_nodes(console, "where each node parts:", parts.nodes)
        return
    print_lines(
        console,
        [
            "That is a matter of time, as between any two seeds. Their stories, without times, "
            "offsets and member ids, from the steady state on:"
        ],
    )
    if difference.story:
        _print_nodes(console, "where each node's story parts:", difference.story)
    else:
        print_lines(console, ["both tell the same story"], style="bold green")


def _told(side: "Side") -> str:
    result = "" if side.result is None else f", {side.result}"
    return f"{side.name}: {len(side.rows):,} rows{result}"


def _print_exact(console: Console, parts: Parting) -> None:
    first = [rows[0] for rows in (parts.one, parts.other) if rows]
    at = clock(min(row.time_us for row in first))
    print_lines(
        console,
        [f"They part at {at}, after {parts.rows_alike:,} rows alike."],
        style="bold red",
    )
    if parts.before:
        print_lines(console, ["what both have before:"], style="bold")
        for row in parts.before:
            print_lines(console, [f"  {row_words(row)}"])
    print_lines(console, ["how they go on:"], style="bold")
    pairs = list(zip_longest(parts.one, parts.other))
    console.print(_side_by_side(pairs))


def _print_nodes(console: Console, heading: str, nodes: Sequence[NodeParting]) -> None:
    print_lines(console, [heading], style="bold")
    console.print(_side_by_side([(each.one, each.other) for each in nodes[:_MAX_NODES]]))
    if len(nodes) > _MAX_NODES:
        print_lines(console, [f"and {len(nodes) - _MAX_NODES} more nodes"])


def _side_by_side(pairs: Iterable[tuple[TraceRow | None, TraceRow | None]]) -> Table:
    table = Table(expand=True, pad_edge=False)
    table.add_column("A", ratio=1, overflow="fold")
    table.add_column("B", ratio=1, overflow="fold")
    for one, other in pairs:
        style = "" if _same(one, other) else "bold"
        table.add_row(_cell(one, style), _cell(other, style))
    return table


def _cell(row: TraceRow | None, style: str) -> Text:
    return Text(_NO_MORE, style="dim") if row is None else Text(row_words(row), style=style)


def _same(one: TraceRow | None, other: TraceRow | None) -> bool:
    return one is not None and other is not None and row_words(one) == row_words(other)
