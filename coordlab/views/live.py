"""The live view of a run while it goes on.

On a terminal one panel that is redrawn (`live_panel`); elsewhere, and on a terminal that cannot
move its cursor, one line per change of stage or fault.
"""

from collections.abc import Iterator
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from chaos.experiment.structs import Experiment
from chaos.run.runner import Progress
from coordlab.views.live_panel import fate, panel
from results_schema.journal import FaultOutcome

REFRESH_PER_SECOND = 4


class LiveView:
    """Shows `Progress` on a console: call it for every change, use it as a context manager."""

    def __init__(self, console: Console, experiment: Experiment, runtime: str) -> None:
        self._console = console
        self._experiment = experiment
        self._runtime = runtime
        self._last: Progress | None = None
        self._told: dict[str, str] = {}
        self._findings_told = 0
        self._stage = ""
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

    def __enter__(self) -> "LiveView":
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
        """Clear the panel; the closing summary says what remains to be said."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Take in a change; a ProgressObserver."""
        self._last = progress
        if self._live is None:
            self._tell(progress)

    def _tell(self, progress: Progress) -> None:
        for time_us, line in _changes(progress, self._told):
            self._line(time_us, line)
        for finding in progress.findings[self._findings_told :]:
            self._line(finding.time_us, f"{finding.check} is violated: {finding.summary}")
        self._findings_told = len(progress.findings)
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._line(progress.time_us, progress.stage)

    def _line(self, time_us: int, text: str) -> None:
        line = Text(f"{time_us / 1e6:9.3f} s  {text}")  # names may hold what rich reads as markup
        self._console.print(line, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        if self._last is None:
            return Text(f"{self._experiment.name} on {self._runtime}: starting")
        return panel(self._experiment.name, self._runtime, self._last, self._console.width)


def _changes(progress: Progress, told: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield what became of faults since `told`, as lines with their times, and remember it."""
    for fault in progress.faults:
        now = fate(fault)
        if fault.outcome is FaultOutcome.PLANNED or told.get(fault.fault_id) == now:
            continue
        told[fault.fault_id] = now
        at_us = fault.fired_at_us if fault.healed_at_us is None else fault.healed_at_us
        injected = fault.outcome is FaultOutcome.HIT and fault.healed_at_us is None
        whom = f"hit {fault.hit}; " if injected else ""
        yield at_us or progress.time_us, f"{fault.fault} {fault.target}: {whom}{now}"
