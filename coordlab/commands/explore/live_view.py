"""Shows a search while it goes on: the number of its runs, and the violations in these runs.

On a terminal the view is a panel, for example:

    exploring standard  4 workers  61 s
    1,204 of 5,000 runs  1,180 runs/min  2 findings in 9 runs  3 min 13 s left
    coverage marks 61/80; played twice, equal 58/58
    one_owner-1  7 runs, e.g. seed 312: <partition> has two owners

Several runs that violate a promise in the same way are one finding. A coverage mark is a rare
situation that a good search should reach. Some seeds are played twice, and should give the same
trace both times. If the output is no terminal, the view prints lines instead of a panel.
"""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from chaos.exploration.marks.registry import expected_marks
from chaos.exploration.play import PlayResult
from chaos.exploration.results import reached_marks, unreached
from chaos.exploration.running_totals import FindingGroup, Tally
from chaos.exploration.search import SearchProgress, Stop
from coordlab.views.live import LiveView
from pipeline.summary.story import counted

LINE_EVERY_S = 10.0
"""The time between two lines about the progress, if the output is no terminal."""
_MAX_GROUPS = 8
"""The largest number of findings in the panel. The summary at the end has more."""
_MAX_REASONS = 3
"""The largest number of failures of each kind in the panel."""
_SECONDS_PER_MINUTE = 60
_MINUTES_PER_HOUR = 60


def exploration_view(
    console: Console, space: str, *, shown: bool = True
) -> LiveView[SearchProgress]:
    """Return the live view of a search of `space`."""

    def render(progress: SearchProgress | None) -> RenderableType:
        if progress is None:
            return Text(f"exploring {space}: starting the workers")
        return exploration_panel(space, progress)

    return LiveView(console, render, _SearchLines(), shown=shown)


class _SearchLines:
    """Yields the lines about the news in each progress of a search."""

    def __init__(self) -> None:
        self._last_progress_line_s: float | None = None
        """The time of the last line about the progress, counted from the beginning of the search.
        """
        self._printed_groups = 0
        """The number of findings that have had a line."""
        self._broken_runs_before = 0
        """The number of broken runs in the progress before."""

    def __call__(self, progress: SearchProgress) -> Iterator[str]:
        tally = progress.tally
        new_groups = list(tally.groups.values())[self._printed_groups :]
        for group in new_groups:
            # The line names the first seed with this finding. Later the search may choose another
            # seed as a better example.
            yield _line_with_time(
                progress, f"{group.name}: {group.finding.summary} (seed {group.seeds[0]})"
            )
        self._printed_groups = len(tally.groups)
        if tally.broken_runs > self._broken_runs_before:
            self._broken_runs_before = tally.broken_runs
            yield _line_with_time(
                progress, f"the lab itself failed: {_most_serious_failure(tally)}"
            )
        last_s = self._last_progress_line_s
        if last_s is None or progress.elapsed_s - last_s >= LINE_EVERY_S:
            self._last_progress_line_s = progress.elapsed_s
            yield _line_with_time(progress, progress_text(progress))


def _line_with_time(progress: SearchProgress, text: str) -> str:
    """Return a line that begins with the time since the search began."""
    return f"{progress.elapsed_s:7.1f} s  {text}"


def exploration_panel(space: str, progress: SearchProgress) -> Group:
    """Return the panel of a search: its progress, its findings, and failures of coordlab itself."""
    tally = progress.tally
    workers = counted(progress.workers, "worker")
    heading = f"exploring {space}  {workers}  {progress.elapsed_s:.0f} s"
    parts: list[RenderableType] = [
        Text(heading, style="bold"),
        Text(progress_text(progress)),
        Text(f"{marks_text(tally)}; {rechecks_text(tally)}", style="dim"),
    ]
    parts += [_group_line(group) for group in _most_frequent(tally)]
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
        parts.append(Text(_why_it_stops(progress.stop), style="yellow"))
    return Group(*parts)


def progress_text(progress: SearchProgress) -> str:
    """Return one line about the search: its progress, its speed, and its findings."""
    tally = progress.tally
    played = f"{tally.runs:,}"
    if progress.runs_wanted is not None:
        played += f" of {progress.runs_wanted:,}"
    texts = [f"{played} runs", f"{progress.runs_per_minute:,.0f} runs/min"]
    violated = tally.results[PlayResult.VIOLATED]
    if tally.groups:
        texts.append(f"{counted(len(tally.groups), 'finding')} in {violated:,} runs")
    else:
        texts.append("no finding")
    unknown = tally.results[PlayResult.UNKNOWN]
    if unknown:
        texts.append(f"{unknown:,} unknown")
    if tally.broken_runs:
        texts.append(f"{tally.broken_runs:,} BROKEN")
    # A search that stops early does not use the time that is left.
    if progress.left_s is not None and progress.stop is None:
        texts.append(f"{_duration(progress.left_s)} left")
    return "  ".join(texts)


def marks_text(tally: Tally) -> str:
    """Return the numbers of coverage marks that the search has reached, and should reach."""
    # Not every space can reach every mark. For instance, some marks are about groups on ZooKeeper.
    # The search should reach all these marks if it has reached one of them.
    expected = len(expected_marks(reached_marks(tally)))
    return f"coverage marks {expected - len(unreached(tally))}/{expected}"


def rechecks_text(tally: Tally) -> str:
    """Return the numbers of seeds that gave the same trace twice, and that were played twice."""
    return f"played twice, equal {tally.rechecked - len(tally.differences):,}/{tally.rechecked:,}"


def _most_frequent(tally: Tally) -> list[FindingGroup]:
    """Return the findings to show. The findings with the most runs come first."""
    by_runs = sorted(tally.groups.values(), key=lambda group: (-len(group.seeds), group.name))
    return by_runs[:_MAX_GROUPS]


def _group_line(group: FindingGroup) -> Text:
    """Return a line about a finding: `one_owner-1  7 runs, e.g. seed 312: ...`."""
    return Text.assemble(
        (f"{group.name}", "bold red"),
        f"  {counted(len(group.seeds), 'run')}, e.g. seed {group.example.seed}: "
        f"{group.finding.summary}",
    )


def _most_serious_failure(tally: Tally) -> str:
    """Return the most serious failure of coordlab itself so far.

    If several failures are equally serious, return the last of them.
    """
    # The worst failure is a seed that gave two results, because then no result can be trusted.
    if tally.differences:
        return f"seed {tally.differences[-1].seed} is not deterministic"
    if tally.lost:
        seed, why = list(tally.lost.items())[-1]
        return f"seed {seed} ends its worker: {why}"
    return list(tally.broken)[-1]


def _why_it_stops(stop: Stop) -> str:
    return f"{stop.value}: finishing what is being played"


def _duration(seconds: float) -> str:
    """Return a length of time as `45 s`, `2 min 05 s` or `1 h 12 min`."""
    if seconds < _SECONDS_PER_MINUTE:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), _SECONDS_PER_MINUTE)
    if minutes < _MINUTES_PER_HOUR:
        return f"{minutes} min {rest_s:02} s"
    return f"{minutes // _MINUTES_PER_HOUR} h {minutes % _MINUTES_PER_HOUR:02} min"
