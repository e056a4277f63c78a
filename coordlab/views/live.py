"""Shows the progress of work that takes a while: a run, a search, or a standing cluster.

On a terminal the view is a panel, which is drawn again and again in the same place. If the output
goes to a file, or the terminal cannot move its cursor, lines are printed instead. From time to time
the work reports a progress, which is an object that describes the whole state of the work. The
command passes two functions to the view: one returns the panel for a progress, and the other yields
the lines about the changes since the last progress.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

REFRESH_PER_SECOND = 4
ProgressT = TypeVar("ProgressT")
"""The class that describes the state of the work."""


class LiveView(Generic[ProgressT]):
    """Shows progress on a console.

    Use the view as a context manager, and call it whenever there is a new progress. At the end the
    panel disappears, because the command then prints a closing summary.
    """

    def __init__(
        self,
        console: Console,
        render: Callable[[ProgressT | None], RenderableType],
        lines: Callable[[ProgressT], Iterable[str]],
        *,
        shown: bool = True,
    ) -> None:
        """Set up the view.

        - `render`: returns the panel for a progress, or for None before the first progress.
        - `lines`: yields the lines to print for a progress.
        - `shown`: False to show nothing, because the output of the command is a JSON document.
        """
        self.render = render  # public for tests
        self._console = console
        self._lines = lines
        self._shown = shown
        self._last: ProgressT | None = None
        self._live: Live | None = None
        if shown and console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                console=console,
                refresh_per_second=REFRESH_PER_SECOND,
                get_renderable=lambda: render(self._last),
                transient=True,
            )

    def __enter__(self) -> "LiveView[ProgressT]":
        """Show the panel."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Clear the panel."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: ProgressT) -> None:
        """Show a progress: print its lines at once, or keep it until the panel is drawn next."""
        self._last = progress
        if self._shown and self._live is None:
            for line in self._lines(progress):
                # Print a Text. In a plain string, rich would take `[red]` for markup.
                self._console.print(Text(line), highlight=False, soft_wrap=True)
