"""LiveView: shows the progress of long work, as a panel on a terminal, as lines elsewhere.

A progress is an object that describes the state of the work at one moment. A command provides two
functions: one makes the panel from the latest progress, the other yields the lines that a progress
adds to the earlier ones. A terminal that cannot move its cursor also gets lines.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

REFRESH_PER_SECOND = 4
P = TypeVar("P")
"""The class of a progress."""


class LiveView(Generic[P]):
    """Shows progress on a console.

    Use it as a context manager, and call it with each progress. The panel is cleared at the end,
    because a closing summary follows. With `shown` False the view prints nothing. Commands use that
    if their output is one JSON document.
    """

    def __init__(
        self,
        console: Console,
        render: Callable[[P | None], RenderableType],
        lines: Callable[[P], Iterable[str]],
        *,
        shown: bool = True,
    ) -> None:
        """Set up the view.

        - `render`: returns the panel. Before the first progress it is called with None. It is a
          public attribute, for tests.
        - `lines`: yields the lines to print for a progress.
        """
        self.render = render
        self._console = console
        self._lines = lines
        self._shown = shown
        self._last: P | None = None
        self._live: Live | None = None
        if shown and console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                console=console,
                refresh_per_second=REFRESH_PER_SECOND,
                get_renderable=lambda: render(self._last),
                transient=True,
            )

    def __enter__(self) -> "LiveView[P]":
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

    def __call__(self, progress: P) -> None:
        """Show a progress. Lines are printed immediately, the panel at its next refresh."""
        self._last = progress
        if self._shown and self._live is None:
            for line in self._lines(progress):
                # A Text, because rich would interpret a name such as `[red]` as markup.
                self._console.print(Text(line), highlight=False, soft_wrap=True)
