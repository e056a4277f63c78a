"""The live view of an exploration, a search that plays many random runs.

Each run is drawn from a number, its seed. Worker processes play the runs. A finding is a violated
promise. Runs whose violations have the same evidence form one group, and count as one finding. A
coverage mark is a rare situation that a search should reach.

If the output is no terminal, the view prints a line for each new finding, and a line with the
progress every `LINE_EVERY_S` seconds. It also prints a line when coordlab itself ("the lab") has
failed in more runs than before.

The tally has the totals over the runs:

- `groups`: the findings, each with the seeds of its runs.
- `broken`: the reasons why coordlab itself failed, each with the seeds of these runs.
- `lost`: the seeds of runs that ended the process of their worker, each with the reason.
- `differences`: the seeds that gave two results when they were played twice.
- `results`: the number of runs with each result. UNKNOWN is a run that proves nothing, for example
  because the cluster did not become steady.
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
_MAX_GROUPS = 8
"""Limit of the findings that the panel shows. The summary has more of them."""
_MAX_REASONS = 3
"""Limit of the failures of each kind that the panel shows."""
_MINUTE_S = 60
_HOUR_MIN = 60


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
    """Yields the lines that each progress of a search adds to the lines before."""

    def __init__(self) -> None:
        self._progress_s: float | None = None  # time of the last line with the progress
        self._printed_groups = 0  # number of findings that were printed so far
        self._printed_broken_runs = 0  # number of failed runs at the last line about a failure

    def __call__(self, progress: SearchProgress) -> Iterator[str]:
        tally = progress.tally
        for group in list(tally.groups.values())[self._printed_groups :]:
            # The line has the first seed of the new group. The panel has the seed of the group's
            # best example instead, which a later run may replace.
            yield _timed(progress, f"{group.name}: {group.finding.summary} (seed {group.seeds[0]})")
        self._printed_groups = len(tally.groups)
        if tally.broken_runs > self._printed_broken_runs:
            self._printed_broken_runs = tally.broken_runs
            yield _timed(progress, f"the lab itself failed: {_most_serious_failure(tally)}")
        # The first progress is printed at once.
        if self._progress_s is None or progress.elapsed_s - self._progress_s >= LINE_EVERY_S:
            self._progress_s = progress.elapsed_s
            yield _timed(progress, progress_text(progress))


def _timed(progress: SearchProgress, text: str) -> str:
    """Return a line that begins with the time since the start of the search."""
    return f"{progress.elapsed_s:7.1f} s  {text}"


def exploration_panel(space: str, progress: SearchProgress) -> Group:
    """Return the panel of a search: its figures, its findings, and failures of coordlab itself."""
    tally = progress.tally
    parts: list[RenderableType] = [
        Text(f"exploring {space}", style="bold").append(
            f"  {counted(progress.workers, 'worker')}  {progress.elapsed_s:.0f} s", style=""
        ),
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
        parts.append(Text(_ending(progress.stop), style="yellow"))
    return Group(*parts)


def progress_text(progress: SearchProgress) -> str:
    """Return runs, speed, findings and the time left in one line."""
    tally = progress.tally
    of_wanted = "" if progress.runs_wanted is None else f" of {progress.runs_wanted:,}"
    texts = [f"{tally.runs:,}{of_wanted} runs", f"{progress.runs_per_minute:,.0f} runs/min"]
    violated = tally.results[PlayResult.VIOLATED]
    if tally.groups:
        texts.append(f"{counted(len(tally.groups), 'finding')} in {violated:,} runs")
    else:
        texts.append("no finding")
    if unknown := tally.results[PlayResult.UNKNOWN]:
        texts.append(f"{unknown:,} unknown")
    if tally.broken_runs:
        texts.append(f"{tally.broken_runs:,} BROKEN")
    # `left_s` is the time until the limits of the search. A search that stops earlier only finishes
    # the runs in progress, so `left_s` means nothing then.
    if progress.left_s is not None and progress.stop is None:
        texts.append(f"{_duration(progress.left_s)} left")
    return "  ".join(texts)


def marks_text(tally: Tally) -> str:
    """Return how many of the coverage marks (situations to reach) were reached."""
    # Some marks are possible only in some spaces, for example with groups on ZooKeeper. These marks
    # are expected only if a run has reached one of them.
    expected = len(expected_marks(reached_marks(tally)))
    return f"coverage marks {expected - len(unreached(tally))}/{expected}"


def rechecks_text(tally: Tally) -> str:
    """Return how many seeds were played twice, and how many of them gave the same trace."""
    return f"played twice, equal {tally.rechecked - len(tally.differences):,}/{tally.rechecked:,}"


def _most_frequent(tally: Tally) -> list[FindingGroup]:
    """Return the _MAX_GROUPS findings with the most runs."""
    by_runs = sorted(tally.groups.values(), key=lambda group: (-len(group.seeds), group.name))
    return by_runs[:_MAX_GROUPS]


def _group_line(group: FindingGroup) -> Text:
    """Return a line on a finding: its runs, the seed of its example, and what is violated."""
    return Text.assemble(
        (f"{group.name}", "bold red"),
        f"  {counted(len(group.seeds), 'run')}, e.g. seed {group.example.seed}: "
        f"{group.finding.summary}",
    )


def _most_serious_failure(tally: Tally) -> str:
    """Return the last failure of coordlab itself that is of the most serious kind so far.

    The kinds, from the most serious one: a seed with two results, a seed that ended its worker, and
    any other failure of a run.
    """
    if tally.differences:
        return f"seed {tally.differences[-1].seed} is not deterministic"
    if tally.lost:
        seed, why = list(tally.lost.items())[-1]
        return f"seed {seed} ends its worker: {why}"
    return list(tally.broken)[-1]


def _ending(stop: Stop) -> str:
    """Return why the search stops, and what it still does."""
    return f"{stop.value}: finishing what is being played"


def _duration(seconds: float) -> str:
    """Return a length of time as text, such as `2 min 05 s`."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), _MINUTE_S)
    if minutes < _HOUR_MIN:
        return f"{minutes} min {rest_s:02} s"
    return f"{minutes // _HOUR_MIN} h {minutes % _HOUR_MIN:02} min"
