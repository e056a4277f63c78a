"""What commands print: lines that fit a terminal of any width, and JSON documents.

A line that is too long goes on under its beginning, with its units beside their numbers.
"""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

_NUMBER_AND_UNIT = re.compile(r"(\d) (s|ms|us)\b")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_MIN_WIDTH = 20


def clock_seconds(time_us: int | None) -> str:
    """Return a time of the run's clock as seconds with milliseconds."""
    return "-" if time_us is None else f"{time_us / 1e6:.3f} s"


def print_lines(console: Console, lines: Iterable[str], *, style: str = "") -> None:
    """Print lines as they are; what does not fit goes on below, two columns further in.

    A line's leading spaces indent all of it.
    """
    for line in lines:
        text = line.lstrip()
        indent = " " * (len(line) - len(text))
        parts = textwrap.wrap(
            _NUMBER_AND_UNIT.sub(rf"\1{_NO_BREAK}\2", text),
            max(_MIN_WIDTH, console.width - len(indent)),
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in parts:
            shown = indent + part.replace(_NO_BREAK, " ")
            console.print(Text(shown, style=style), soft_wrap=True)


def print_path(console: Console, what: str, path: Path) -> None:
    """Print where something lies, on one line: a broken one can be neither clicked nor copied."""
    console.print(Text(f"{what}: {path}"), soft_wrap=True)


def print_document(console: Console, document: object, *, indented: bool = False) -> None:
    """Print one JSON document: no colour, no wrapping."""
    encoded = msgspec.json.encode(document, enc_hook=str)
    if indented:
        encoded = msgspec.json.format(encoded, indent=2)
    console.file.write(encoded.decode() + "\n")
