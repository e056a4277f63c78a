"""The live view of work that goes on: one panel on a terminal, elsewhere a line now and then.

A command gives two functions: one renders the panel from the latest progress, one yields the lines
that a progress adds. On a terminal that cannot move its cursor there are lines, too.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

REFRESH_PER_SECOND = 4
P = TypeVar("P")


class LiveView(Generic[P]):
    """Shows progress on a console: call it for each, use it as a context manager.

    The panel is cleared at the end: the closing summary says what remains to be said. A view that
    is not `shown` prints nothing: standard output is one JSON document then.
    """

    def __init__(
        self,
        console: Console,
        render: Callable[[P | None], RenderableType],
        lines: Callable[[P], Iterable[str]],
        *,
        shown: bool = True,
    ) -> None:
        """Take the functions; `render` gets None before the first progress."""
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
        """Begin to show."""
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
        """Take in a progress."""
        self._last = progress
        if self._shown and self._live is None:
            for line in self._lines(progress):
                # A Text: names may hold what rich reads as markup.
                self._console.print(Text(line), highlight=False, soft_wrap=True)
