"""A live view shows the progress of a command: as a panel on a terminal, as lines elsewhere.

With `--json` a command prints a document, and the view must print nothing.

A LiveView gets two functions, which are called with the progress: the first function makes the
panel, and the second function makes the new lines. In these tests the progress is a number, and
`lines` makes as many lines.
"""

import io

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from coordlab.views.live import LiveView


def panel(progress: int | None) -> RenderableType:
    """Return a panel with the number, which is None before the first call of the view."""
    return Text(f"panel {progress}")


def lines(progress: int) -> tuple[str, ...]:
    """Return lines that look like markup of the library rich: `[red]line[/] 0`, and so on."""
    return tuple(f"[red]line[/] {number}" for number in range(progress))


def printed_on(console: Console) -> str:
    """Return what was printed on a console whose file is a buffer."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("terminal", "shown", "expected"),
    [
        # One line for the progress 1, and two lines for the progress 2.
        (False, True, "[red]line[/] 0\n[red]line[/] 0\n[red]line[/] 1\n"),
        (False, False, ""),
        (True, False, ""),
    ],
    ids=["into a file", "hidden by --json", "hidden by --json on a terminal"],
)
def test_live_view_prints_each_line_unchanged_unless_it_is_hidden(
    terminal: bool, shown: bool, expected: str
) -> None:
    """Names may look like markup of the console, and must be printed unchanged.

    With `--json` the view is not `shown`, because standard output is only for the document.
    """
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal)
    with LiveView(console, panel, lines, shown=shown) as view:
        view(1)
        view(2)
    assert printed_on(console) == expected


def test_live_view_on_a_terminal_draws_the_latest_progress_and_no_line() -> None:
    """A panel is drawn again in the same place, so lines would push it away."""
    console = Console(file=io.StringIO(), width=40, force_terminal=True, no_color=True)
    with LiveView(console, panel, lines) as view:
        view(1)
        view(2)
    page = printed_on(console)
    assert "panel 2" in page
    assert "line" not in page


def test_live_view_on_a_terminal_without_cursor_movement_prints_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TERM=dumb means a terminal that cannot move its cursor, such as an editor's shell."""
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    with LiveView(console, panel, lines) as view:
        view(1)
    assert printed_on(console) == "[red]line[/] 0\n"
