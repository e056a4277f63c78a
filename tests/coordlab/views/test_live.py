"""A live view: a panel on a terminal, lines elsewhere, nothing beside a JSON document.

In these tests the progress is a number. `render` shows the number in the panel; `lines` returns
that number of lines.
"""

import io

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from coordlab.views.live import LiveView


def render(progress: int | None) -> RenderableType:
    """Return the panel."""
    return Text(f"panel {progress}")


def lines(progress: int) -> tuple[str, ...]:
    """Return lines that look like rich's markup."""
    return tuple(f"[red]line[/] {number}" for number in range(progress))


@pytest.mark.parametrize(
    ("terminal", "shown", "expected"),
    [
        (False, True, "[red]line[/] 0\n[red]line[/] 0\n[red]line[/] 1\n"),
        (False, False, ""),
        (True, False, ""),
    ],
)
def test_live_view_prints_each_line_unchanged_unless_it_is_hidden(
    terminal: bool, shown: bool, expected: str
) -> None:
    """Names may look like rich's markup, and must stay as they are.

    With `--json`, standard output is only for the document.
    """
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal)
    with LiveView(console, render, lines, shown=shown) as view:
        view(1)
        view(2)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == expected


def test_live_view_on_a_terminal_draws_the_latest_progress_and_no_line() -> None:
    """The panel is drawn again in its place, and lines would push it away."""
    console = Console(file=io.StringIO(), width=40, force_terminal=True, no_color=True)
    with LiveView(console, render, lines) as view:
        view(1)
        view(2)
    assert isinstance(console.file, io.StringIO)
    page = console.file.getvalue()
    assert "panel 2" in page
    assert "line" not in page


def test_live_view_on_a_terminal_without_cursor_movement_prints_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TERM=dumb means a terminal that cannot move its cursor, such as an editor's shell."""
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    with LiveView(console, render, lines) as view:
        view(1)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "[red]line[/] 0\n"
