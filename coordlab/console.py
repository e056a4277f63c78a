"""How commands print lines, tables, paths, JSON documents, and rows of a trace.

The output is made for terminals of any width. What a user wants to copy, such as a path or a
command, is never wrapped.
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
"""A number with its unit, such as the last two words of `after 31.500 s`."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_MIN_WIDTH_OF_WRAPPED_LINE = 20
"""Lines are not wrapped to less than this. A narrower terminal breaks them somewhere."""
NODE_WIDTH = 20
"""Width of the node's name in `row_line`."""
KIND_WIDTH = 22
"""Width of the kind of event in `row_line`."""
_COLUMNS = ("peer", "group", "member", "partition", "generation", "leader_epoch", "offset", "api")
"""These columns of a row are printed after its kind, as far as they have a value."""
_WORD_BEFORE_VALUE = {"generation": "generation ", "leader_epoch": "epoch ", "offset": "offset "}
"""A number alone would say nothing, so `generation 4` is printed, and `epoch 2`."""


def clock_seconds(time_us: int | None) -> str:
    """Return a time of the run's clock for people: `31.500 s`; "-" for None."""
    return "-" if time_us is None else f"{time_us / 1e6:.3f} s"


def print_lines(console: Console, lines: Iterable[str], *, style: str = "") -> None:
    """Print lines, and wrap those that are too long.

    What does not fit into the first line is indented by two more blanks. A number is not separated
    from its unit.
    """
    for line in lines:
        text = line.lstrip()
        indent = " " * (len(line) - len(text))
        # `wrap` breaks no line at a no-break space. So one is put between a number and its unit,
        # and replaced by a normal space below.
        parts = textwrap.wrap(
            _NUMBER_AND_UNIT.sub(rf"\1{_NO_BREAK}\2", text),
            max(_MIN_WIDTH_OF_WRAPPED_LINE, console.width - len(indent)),
            subsequent_indent="  ",
            # A path or a name could not be copied if it was broken.
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
    # A line is a list of segments. Blank segments at its end are dropped, and then the blanks at
    # the end of the last segment that is left.
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
    """Return a time of the run's clock, `31.402118s`, as `replay --until` takes it."""
    return f"{time_us / 1e6:.6f}s"


def row_words(row: TraceRow) -> str:
    """Return a row of a trace as words, for output that is wrapped."""
    return " ".join(
        (clock(row.time_us), _node_with_incarnation(row), row.kind, *_texts_of_columns(row))
    )


def row_line(row: TraceRow) -> str:
    """Return a row of a trace as a line whose columns stand below those of other rows."""
    time = clock(row.time_us).rjust(13)
    node = _node_with_incarnation(row).ljust(NODE_WIDTH)
    kind = row.kind.ljust(KIND_WIDTH)
    return f"{time}  {node} {kind} {' '.join(_texts_of_columns(row))}".rstrip()


def _node_with_incarnation(row: TraceRow) -> str:
    """Return `broker-1`, or after two restarts `broker-1/2`."""
    if row.incarnation == 0:
        return row.node
    return f"{row.node}/{row.incarnation}"


def _texts_of_columns(row: TraceRow) -> Iterator[str]:
    """Yield a text for each column after the kind that has a value: `readers`, `generation 4`."""
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
