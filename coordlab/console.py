"""Functions with which commands print lines, tables, paths, JSON documents, and rows of a trace.

The output is made for terminals of any width. Texts that a user wants to copy, such as a path or a
command, are never wrapped.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from protocol.trace import TraceRow

_NUMBER_AND_UNIT = re.compile(r"(\d) (s|ms|us)\b")
"""Matches a digit and a unit, such as `0 s` in `after 31.500 s`."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_MIN_WIDTH_OF_WRAPPED_LINE = 20
"""The smallest width to which lines are wrapped. A narrower terminal itself breaks the lines."""
_TIME_WIDTH = 13
"""Width of the time in `row_line`."""
NODE_WIDTH = 20
"""Width of the node's name in `row_line`."""
KIND_WIDTH = 22
"""Width of the kind of event in `row_line`."""
_COLUMNS = ("peer", "group", "member", "partition", "generation", "leader_epoch", "offset", "api")
"""Columns of a row that are printed after its kind, unless their value is None."""
_WORD_BEFORE_VALUE = {"generation": "generation ", "leader_epoch": "epoch ", "offset": "offset "}
"""Column -> the word before its value, as in `epoch 2`. A number alone would say nothing."""


def clock_seconds(time_us: int | None) -> str:
    """Return a time of the run's clock for people, such as `31.500 s`; "-" for None."""
    return "-" if time_us is None else f"{time_us / 1e6:.3f} s"


def print_lines(console: Console, lines: Iterable[str], *, style: str = "") -> None:
    """Print lines, and wrap lines that are too long.

    The second and later parts of a wrapped line are indented by two more blanks. A number is not
    separated from its unit.
    """
    for line in lines:
        text = line.lstrip()
        indent = " " * (len(line) - len(text))
        # `wrap` breaks no line at a no-break space. So put a no-break space between a number and
        # its unit. Below it is replaced by a normal space.
        parts = textwrap.wrap(
            _NUMBER_AND_UNIT.sub(rf"\1{_NO_BREAK}\2", text),
            max(_MIN_WIDTH_OF_WRAPPED_LINE, console.width - len(indent)),
            subsequent_indent="  ",
            # A user could not copy a path or a name that is broken in two.
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in parts:
            shown = indent + part.replace(_NO_BREAK, " ")
            console.print(Text(shown, style=style), soft_wrap=True)


def print_path(console: Console, label: str, path: Path) -> None:
    """Print `report: runs/lab/report.html` on one line, so that the path can be clicked or copied.

    The path is relative if it is below the working directory.
    """
    working_directory = Path.cwd()
    if path.is_relative_to(working_directory):
        path = path.relative_to(working_directory)
    console.print(Text(f"{label}: {path}"), soft_wrap=True)


def print_table(console: Console, table: RenderableType) -> None:
    """Print a table, or several side by side, without the blanks that rich adds to each line."""
    # A line is a list of segments. Drop the blank segments at its end. Then drop the blanks at the
    # end of the last segment that is left.
    for line in console.render_lines(table, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            last = line.pop()
            line.append(Segment(last.text.rstrip(), last.style, last.control))
        console.print(Segments([*line, Segment.line()]), end="")


def print_document(console: Console, document: object, *, indented: bool = False) -> None:
    """Print one JSON document. Values that are unknown to JSON, such as paths, become texts."""
    encoded = msgspec.json.encode(document, enc_hook=str)
    if indented:
        encoded = msgspec.json.format(encoded, indent=2)
    console.file.write(encoded.decode() + "\n")


def clock(time_us: int) -> str:
    """Return a time of the run's clock in the form that `replay --until` reads: `31.402118s`."""
    return f"{time_us / 1e6:.6f}s"


def row_words(row: TraceRow) -> str:
    """Return a row of a trace as words, for output that is wrapped."""
    return " ".join(
        (clock(row.time_us), _node_with_incarnation(row), row.kind, *_texts_of_columns(row))
    )


def row_line(row: TraceRow) -> str:
    """Return a row of a trace as a line. The columns of several such lines are aligned."""
    time = clock(row.time_us).rjust(_TIME_WIDTH)
    node = _node_with_incarnation(row).ljust(NODE_WIDTH)
    kind = row.kind.ljust(KIND_WIDTH)
    return f"{time}  {node} {kind} {' '.join(_texts_of_columns(row))}".rstrip()


def _node_with_incarnation(row: TraceRow) -> str:
    """Return the node of a row, such as `broker-1`, or `broker-1/2` after two restarts."""
    if row.incarnation == 0:
        return row.node
    return f"{row.node}/{row.incarnation}"


def _texts_of_columns(row: TraceRow) -> Iterator[str]:
    """Yield a text for each value of a row: `readers`, `generation 4`.

    The time, the node and the kind of the row are left out.
    """
    for name in _COLUMNS:
        value = getattr(row, name)
        if value is not None:
            yield f"{_WORD_BEFORE_VALUE.get(name, '')}{value}"
    if row.correlation_id is not None:
        yield f"#{row.correlation_id}"
    if row.error is not None:
        yield f"error {row.error}"
    if row.explanation is not None:
        yield f"({row.explanation})"
    if row.detail is not None:
        yield row.detail
