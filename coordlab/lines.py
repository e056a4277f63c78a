"""Plain lines on a terminal of any width: wrapped under their beginning, units beside numbers."""

import re
import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

_NUMBER_AND_UNIT = re.compile(r"(\d) (s|ms|us)\b")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_MIN_WIDTH = 20


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
