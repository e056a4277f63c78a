"""Output of commands: lines that fit a terminal of any width, rows of a trace, JSON documents.

A line that is too long is wrapped, and its rest is indented; a number stays beside its unit. The
trace of a run has a row for each event that a node recorded.
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
_NO_BREAK = "\N{NO-BREAK SPACE}"
_MIN_WIDTH = 20
"""Least width to which lines are wrapped; a narrower terminal breaks them itself."""
NODE_WIDTH = 20
"""Width of the column of `row_line` that has the node."""
KIND_WIDTH = 22
"""Width of the column of `row_line` that has the kind of the event."""
_COLUMNS = ("peer", "group", "member", "partition", "generation", "leader_epoch", "offset", "api")
"""Columns of a row that are printed after its kind, if they have a value."""
_COLUMN_WORDS = {"generation": "generation ", "leader_epoch": "epoch ", "offset": "offset "}
"""Words before the values of some columns. These values are numbers, which nobody would understand
without a word. The generation of a group grows with each rebalance, and the epoch of a partition
with each change of its leader."""


def clock_seconds(time_us: int | None) -> str:
    """Return a time of the run's clock in seconds to the millisecond, for people; "-" for None."""
    return "-" if time_us is None else f"{time_us / 1e6:.3f} s"


def print_lines(console: Console, lines: Iterable[str], *, style: str = "") -> None:
    """Print lines; wrap a line that is too long.

    If a line begins with spaces, all of its parts begin with these spaces. All parts but the first
    are indented by two further columns.
    """
    for line in lines:
        text = line.lstrip()
        indent = " " * (len(line) - len(text))
        # `wrap` does not break a line at a no-break space. Such a space between a number and its
        # unit keeps them on one line; below, a normal space is printed in its place.
        parts = textwrap.wrap(
            _NUMBER_AND_UNIT.sub(rf"\1{_NO_BREAK}\2", text),
            max(_MIN_WIDTH, console.width - len(indent)),
            subsequent_indent="  ",
            # A path or a name that is broken cannot be copied.
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in parts:
            shown = indent + part.replace(_NO_BREAK, " ")
            console.print(Text(shown, style=style), soft_wrap=True)


def print_path(console: Console, what: str, path: Path) -> None:
    """Print the path of a file, relative if it is below the working directory.

    The line is not wrapped, because a wrapped path can be neither clicked nor copied.
    """
    working_directory = Path.cwd()
    is_below = path.is_relative_to(working_directory)
    shown = path.relative_to(working_directory) if is_below else path
    console.print(Text(f"{what}: {shown}"), soft_wrap=True)


def print_table(console: Console, table: RenderableType) -> None:
    """Print a table, or several side by side, without blanks at the ends of lines."""
    # A line is a list of segments. Drop the blank segments at its end, then the blanks at the end
    # of the last segment that is left.
    for line in console.render_lines(table, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            last = line.pop()
            line.append(Segment(last.text.rstrip(), last.style, last.control))
        console.print(Segments([*line, Segment.line()]), end="")


def print_document(console: Console, document: object, *, indented: bool = False) -> None:
    """Print one JSON document, without colour and wrapping."""
    # Values that msgspec cannot encode, such as paths, become text with `str`.
    encoded = msgspec.json.encode(document, enc_hook=str)
    if indented:
        encoded = msgspec.json.format(encoded, indent=2)
    console.file.write(encoded.decode() + "\n")


def clock(time_us: int) -> str:
    """Return a time of the run's clock to the microsecond, for pasting after `replay --until`."""
    return f"{time_us / 1e6:.6f}s"


def row_words(row: TraceRow) -> str:
    """Return a row as text without aligned columns, for output that will be wrapped."""
    return " ".join((clock(row.time_us), _node(row), row.kind, *_filled(row)))


def row_line(row: TraceRow) -> str:
    """Return a row as a line with aligned columns."""
    when, node = clock(row.time_us), _node(row)
    line = f"{when:>13}  {node:<{NODE_WIDTH}} {row.kind:<{KIND_WIDTH}} {' '.join(_filled(row))}"
    return line.rstrip()


def _node(row: TraceRow) -> str:
    """Return the node's name and incarnation, such as `broker-1/2`.

    The incarnation is the number of the node's restarts. It is left out if it is 0.
    """
    return row.node if row.incarnation == 0 else f"{row.node}/{row.incarnation}"


def _filled(row: TraceRow) -> Iterator[str]:
    """Yield the texts of the columns that come after the kind, if they have a value."""
    for name in _COLUMNS:
        value = getattr(row, name)
        if value is not None:
            yield f"{_COLUMN_WORDS.get(name, '')}{value}"
    if row.correlation_id is not None:
        yield f"#{row.correlation_id}"
    if row.error is not None:
        yield f"error {row.error}"
    if row.explanation is not None:
        yield f"({row.explanation})"
    if row.detail is not None:
        yield row.detail
