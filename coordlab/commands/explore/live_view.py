"""The live view of an exploration: one panel on a terminal, elsewhere a line now and then.

Without a terminal there is a line for each new finding and each failure of the lab, and one every
`LINE_EVERY_S` seconds that says how far it is.
"""

from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from chaos.exploration.marks.registry import MARKS
from chaos.exploration.play import PlayResult
from chaos.exploration.results import unreached
from chaos.exploration.running_totals import FindingGroup, Tally
from chaos.exploration.search import SearchProgress, Stop
from coordlab.views.live import REFRESH_PER_SECOND

LINE_EVERY_S = 10.0
_MAX_GROUPS = 8
"""So many findings are shown while it goes on; the summary has them all."""
_MAX_REASONS = 3
_MINUTE_S = 60


class ExploreView:
    """Shows `SearchProgress` on a console: call it for each, use it as a context manager."""

    def __init__(self, console: Console, space: str, time_limit_s: float | None) -> None:
        self._console = console
        self._space = space
        self._time_limit_s = time_limit_s
        self._last: SearchProgress | None = None
        self._told_s = 0.0
        self._groups_told = 0
        self._broken_told = 0
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

    def __enter__(self) -> "ExploreView":
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

    def __call__(self, progress: SearchProgress) -> None:
        """Take in how far it is."""
        first = self._last is None
        self._last = progress
        if self._live is not None:
            return
        for group in list(progress.tally.groups.values())[self._groups_told :]:
            self._line(progress, f"{group.name}: {group.finding.summary} (seed {group.seeds[0]})")
        self._groups_told = len(progress.tally.groups)
        if progress.tally.broken_runs > self._broken_told:
            self._broken_told = progress.tally.broken_runs
            self._line(progress, f"the lab itself failed: {_newest_failure(progress.tally)}")
        if first or progress.elapsed_s - self._told_s >= LINE_EVERY_S:
            self._told_s = progress.elapsed_s
            self._line(progress, progress_text(progress))

    def _line(self, progress: SearchProgress, text: str) -> None:
        line = Text(f"{progress.elapsed_s:7.1f} s  {text}")  # names may hold what is markup
        self._console.print(line, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        if self._last is None:
            return Text(f"exploring {self._space}: starting the workers")
        return exploration_panel(self._space, self._last)


def exploration_panel(space: str, progress: SearchProgress) -> Group:
    """Return what there is to see of a search at one moment."""
    tally = progress.tally
    parts: list[RenderableType] = [
        Text(f"exploring {space}", style="bold").append(
            f"  {_workers(progress)}  {progress.elapsed_s:.0f} s", style=""
        ),
        Text(progress_text(progress)),
        Text(f"{marks_text(tally)}; {rechecks_text(tally)}", style="dim"),
    ]
    parts += [_group_line(group) for group in _loudest(tally)]
    hidden = len(tally.groups) - _MAX_GROUPS
    if hidden > 0:
        parts.append(Text(f"and {hidden} more findings", style="dim"))
    for reason, seeds in list(tally.broken.items())[:_MAX_REASONS]:
        parts.append(Text(f"BROKEN in {len(seeds):,}: {reason}", style="magenta"))
    for different in tally.differences[:_MAX_REASONS]:
        parts.append(Text(f"BROKEN seed {different.seed}: not deterministic", style="magenta"))
    for seed, why in list(tally.lost.items())[:_MAX_REASONS]:
        parts.append(Text(f"BROKEN seed {seed} ends its worker: {why}", style="magenta"))
    if progress.stop is not None:
        parts.append(Text(_ending(progress.stop), style="yellow"))
    return Group(*parts)


def progress_text(progress: SearchProgress) -> str:
    """Say how far a search is, in a line."""
    tally = progress.tally
    of = "" if progress.runs_wanted is None else f" of {progress.runs_wanted:,}"
    said = [f"{tally.runs:,}{of} runs", f"{progress.runs_per_minute:,.0f} runs/min"]
    violated = tally.results[PlayResult.VIOLATED]
    if tally.groups:
        said.append(f"{counted(len(tally.groups), 'finding')} in {violated:,} runs")
    else:
        said.append("no finding")
    if unknown := tally.results[PlayResult.UNKNOWN]:
        said.append(f"{unknown:,} unknown")
    if tally.broken_runs:
        said.append(f"{tally.broken_runs:,} BROKEN")
    if progress.left_s is not None and progress.stop is None:
        said.append(f"{_duration(progress.left_s)} left")
    return "  ".join(said)


def marks_text(tally: Tally) -> str:
    """Say how many of the coverage marks were reached."""
    return f"coverage marks {len(MARKS) - len(unreached(tally))}/{len(MARKS)}"


def rechecks_text(tally: Tally) -> str:
    """Say how many seeds were played twice, and how many gave the same."""
    return f"played twice, equal {tally.rechecked - len(tally.differences):,}/{tally.rechecked:,}"


def counted(number: int, what: str) -> str:
    """Return "1 finding", "2 findings"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _workers(progress: SearchProgress) -> str:
    return counted(progress.workers, "worker")


def _loudest(tally: Tally) -> list[FindingGroup]:
    return sorted(tally.groups.values(), key=lambda group: (-len(group.seeds), group.name))[
        :_MAX_GROUPS
    ]


def _group_line(group: FindingGroup) -> Text:
    return Text.assemble(
        (f"{group.name}", "bold red"),
        f"  {counted(len(group.seeds), 'run')}, e.g. seed {group.example.seed}: "
        f"{group.finding.summary}",
    )


def _newest_failure(tally: Tally) -> str:
    if tally.differences:
        return f"seed {tally.differences[-1].seed} is not deterministic"
    if tally.lost:
        seed, why = list(tally.lost.items())[-1]
        return f"seed {seed} ends its worker: {why}"
    return list(tally.broken)[-1]


def _ending(stop: Stop) -> str:
    return f"{stop.value}: finishing what is being played"


def _duration(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), _MINUTE_S)
    if minutes < _MINUTE_S:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // _MINUTE_S} h {minutes % _MINUTE_S:02} min"
