"""The live view of shrinking: what is being left out, and how small the schedule is by now.

On a terminal a panel; elsewhere a line whenever it became smaller.
"""

from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from chaos.exploration.shrink.edits import Sizes
from chaos.exploration.shrink.shrink import ShrinkProgress
from chaos.exploration.shrink.shrunk_file import horizon_text
from coordlab.views.live import REFRESH_PER_SECOND


class ShrinkView:
    """Shows `ShrinkProgress` on a console: call it for each, use it as a context manager."""

    def __init__(self, console: Console, what: str) -> None:
        self._console = console
        self._what = what
        self._last: ShrinkProgress | None = None
        self._live = (
            Live(
                console=console,
                refresh_per_second=REFRESH_PER_SECOND,
                get_renderable=self._render,
                transient=True,
            )
            if console.is_terminal and not console.is_dumb_terminal
            else None
        )

    def __enter__(self) -> "ShrinkView":
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
        """Clear the panel; the closing lines say what remains to be said."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: ShrinkProgress) -> None:
        """Take in how far it is."""
        before = self._last
        self._last = progress
        if self._live is None and (before is None or before.after != progress.after):
            line = Text(f"{progress.runs:4d} runs  {sizes_line(progress.after)}")
            self._console.print(line, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        if self._last is None:
            return Text(f"shrinking {self._what}: running it as it is")
        last = self._last
        return Text.assemble(
            (f"shrinking {self._what}", "bold"),
            f"  {last.runs} runs\n",
            ("from  ", "dim"),
            (f"{sizes_line(last.before)}\n", "dim"),
            f"to    {sizes_line(last.after)}\n",
            (f"{last.does} ...", "dim"),
        )


def sizes_line(sizes: Sizes) -> str:
    """Return how large a schedule is, in a line."""
    counts = (
        (sizes.faults, "fault"),
        (sizes.brokers, "broker"),
        (sizes.groups, "group"),
        (sizes.members, "member"),
        (sizes.partitions, "partition"),
        (sizes.producers, "producer"),
    )
    said = [f"{count} {what}" if count == 1 else f"{count} {what}s" for count, what in counts]
    return f"{', '.join(said)}, {horizon_text(sizes)} s"
