"""How all commands print tables and paths of files."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordlab.console import print_path, print_table


def printed(*, colour: bool = False) -> tuple[Console, io.StringIO]:
    """Return a console of 40 columns, and the buffer that it prints to."""
    file = io.StringIO()
    return Console(file=file, width=40, force_terminal=colour, no_color=not colour), file


def two_columns() -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("name")
    table.add_column("much longer heading")
    table.add_row(Text("a", style="bold"), "1")
    table.add_row("b", "")
    return table


def test_lines_of_a_table_have_no_trailing_blanks() -> None:
    """Rich pads each cell to its column's width, but blanks at the ends of lines are removed."""
    console, file = printed()
    print_table(console, two_columns())
    assert file.getvalue() == "name  much longer heading\na     1\nb\n"


def test_table_keeps_its_styles() -> None:
    """The code that removes trailing blanks must keep styles, such as bold text (`ESC [1m`)."""
    console, file = printed(colour=True)
    print_table(console, two_columns())
    assert "\x1b[1ma" in file.getvalue()


def test_path_is_printed_relative_to_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path inside this folder is printed as relative, a path outside of it as absolute."""
    monkeypatch.chdir(tmp_path)
    console, file = printed()
    print_path(console, "report", tmp_path / "runs" / "report.html")
    print_path(console, "report", Path("/elsewhere/report.html"))
    assert file.getvalue() == "report: runs/report.html\nreport: /elsewhere/report.html\n"
