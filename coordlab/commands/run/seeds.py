"""`run --seeds`: plays one experiment with several seeds in virtual time, in worker processes.

Wiring only. Data flow: SeedJob -> WorkerProcesses -> a PlayedSeed for each seed -> SeedRuns ->
terminal, JSON or JUnit. Then Spark makes the tables of all runs, the report of one run, and a page
that compares all.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from chaos.experiment.notes import notes_of
from chaos.results.run_directory import NotARun, PastRun, open_run, timestamp
from cluster.fan_out import Died, Finished, number_of
from cluster.worker_processes import WorkerProcesses
from coordlab.analysis import analyze_runs, java_notice, write_comparison, write_run_report
from coordlab.commands.run.play import Playable
from coordlab.commands.run.seed_runs import SeedRun, SeedRuns, SeedState
from coordlab.commands.run.seed_worker import PlayedSeed, SeedJob, decode_seed, play_seed
from coordlab.commands.run.seeds_view import print_seed_figures, print_seed_runs
from coordlab.console import print_document, print_lines, print_path
from coordlab.junit import write_junit
from coordlab.program import called_as
from coordlab.report_facts import facts_of
from coordlab.seed_names import seeds_pattern
from coordlab.signals import stop_on_ctrl_c
from coordlab.views.summary_view import print_notes
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import decode_summary

_POLL_S = 0.2
"""Longest wait for workers between two updates of the bar, which also handle Ctrl-C."""
_MAX_LINES = 40
"""Without a bar, each seed has a line; with more seeds than this only those that did not pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsOptions:
    """Options of `run --seeds`. `workers`: None: one per processor; `master`: Spark's."""

    seeds: tuple[int, ...]
    workers: int | None
    runs: Path
    analyze: bool
    report: bool
    master: str | None
    junit: Path | None
    json: bool


def run_seeds(options: SeedsOptions, playable: Playable, console: Console) -> int:
    """Play every seed, print the results, and return the exit code.

    Raises: NotARun if no directory can be made; JunitNotWritable.
    """
    folder = options.runs / playable.experiment.name
    try:  # here and not in the workers: this is one mistake of the user, not a failure per seed
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotARun(f"no run directory can be made in {options.runs}: {error}") from error
    group = timestamp(datetime.now(UTC))
    job = SeedJob(
        playable=playable,
        runs=options.runs,
        group=group,
        digits=len(str(max(options.seeds))),
    )
    found = _play_all(job, options, console)
    if options.junit is not None:
        write_junit(options.junit, found.junit())
    if options.json:
        print_document(console, found.document(), indented=True)
        return found.exit_code
    print_seed_runs(console, found)
    summaries = {run.seed: run.summary for run in found.finished if run.summary is not None}
    complete = len(summaries) == len(found.finished)
    if complete and summaries:
        print_seed_figures(console, found.figures(list(summaries.values())), len(summaries))
    print_notes(console, notes_of(playable.experiment))
    pattern = folder / seeds_pattern(group)
    print_path(console, "run directories", pattern)
    analysed = _analyze(options, found, pattern, console)
    if not complete and (analysed or summaries):
        shown = list((analysed or summaries).values())
        print_seed_figures(console, found.figures(shown), len(shown))
    if analysed and options.report:
        _write_pages(found, analysed, folder / f"{group}-seeds.html", console)
    return found.exit_code


def _play_all(job: SeedJob, options: SeedsOptions, console: Console) -> SeedRuns:
    playable = job.playable
    runs = {seed: SeedRun(seed=seed, replay=playable.command_line(seed)) for seed in options.seeds}
    size = min(options.workers or os.cpu_count() or 1, len(options.seeds))
    with (
        stop_on_ctrl_c() as stop_requested,
        _Shown(console, len(options.seeds), wanted=not options.json) as shown,
        WorkerProcesses(partial(play_seed, job), size=size) as workers,
    ):
        interrupted = _play(workers, deque(options.seeds), stop_requested, shown.add, runs, job)
    return SeedRuns(
        experiment=playable.experiment.name,
        runtime=playable.runtime,
        runs=tuple(runs.values()),
        interrupted=interrupted,
    )


def _play(
    workers: WorkerProcesses,
    waiting: deque[int],
    stop_requested: Callable[[], bool],
    show: Callable[[SeedRun], None],
    runs: dict[int, SeedRun],
    job: SeedJob,
) -> bool:
    """Fill `runs`; return True if an interruption left seeds unplayed.

    After a Ctrl-C no seed is begun, and those that are played heal their clusters and end.
    """
    playing: set[int] = set()
    interrupted = False
    while waiting or playing:
        if stop_requested() and not interrupted:
            interrupted = True
            waiting.clear()
            workers.interrupt()
        for worker in workers.idle():
            if waiting:
                seed = waiting.popleft()
                workers.give(worker, (seed,))
                playing.add(seed)
        for event in workers.wait(_POLL_S):
            seed = number_of(event.items[0])
            playing.discard(seed)
            runs[seed] = _seed_run(runs[seed], event, job, interrupted=interrupted)
            show(runs[seed])
    return interrupted


def _seed_run(
    asked: SeedRun, event: Finished | Died, job: SeedJob, *, interrupted: bool
) -> SeedRun:
    match event:
        case Died():
            path = job.runs / job.playable.experiment.name / job.name_of(asked.seed)
            if interrupted:
                return _with_directory(asked, path)
            failure = f"the worker that played seed {asked.seed} died: {event.why}"
            return replace(_with_directory(asked, path), failure=failure)
        case Finished():
            played = decode_seed(event.answer)
            return _with_answer(asked, played)


def _with_answer(asked: SeedRun, played: PlayedSeed) -> SeedRun:
    run = replace(
        asked,
        failure=played.failure,
        summary=None if played.summary is None else decode_summary(played.summary),
    )
    return run if played.directory is None else _with_directory(run, Path(played.directory))


def _with_directory(run: SeedRun, path: Path) -> SeedRun:
    """Return a run with what its directory says, as far as it can be read."""
    try:
        past = open_run(path)
    except NotARun:
        return run
    try:
        return replace(run, past=past, results=past.results())
    except NotARun as error:
        return replace(run, past=past, failure=run.failure or str(error))


class _Shown:
    """A bar while seeds are played; where none can be shown, a line for each that is finished."""

    def __init__(self, console: Console, total: int, *, wanted: bool) -> None:
        self._console = console
        self._total = total
        self._lines = wanted and not console.is_terminal
        self._bad = 0
        self._bar = Progress(
            TextColumn("playing seeds"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not wanted or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> "_Shown":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def add(self, run: SeedRun) -> None:
        """Show a seed that is finished."""
        passed = run.state is SeedState.PASSED
        self._bad += not passed
        said = f"{self._bad} not passed" if self._bad else ""
        self._bar.update(self._task, advance=1, description=said)
        if self._lines and (not passed or self._total <= _MAX_LINES):
            why = "" if passed else f": {run.why}"
            print_lines(self._console, [f"seed {run.seed} {run.state.value}{why}"])


def _analyze(
    options: SeedsOptions, found: SeedRuns, pattern: Path, console: Console
) -> dict[int, RunSummary] | None:
    """Make the tables of all finished runs; None where unwanted, or not to be had now."""
    past = _directories(found.finished)
    if not options.analyze or not past:
        return None
    if found.interrupted:
        again = f"to analyse them: {called_as()} analyze {pattern}"
        console.print(Text(again), soft_wrap=True)
        return None
    notice = java_notice(pattern)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return None
    try:
        paths = [each.path for each in past.values()]
        summaries = analyze_runs(console, paths, master=options.master)
    except KeyboardInterrupt:
        console.print("analysis interrupted; the runs themselves are complete")
        return None
    return dict(zip(past, summaries, strict=True))


def _directories(runs: Sequence[SeedRun]) -> dict[int, PastRun]:
    return {run.seed: run.past for run in runs if run.past is not None}


def _write_pages(
    found: SeedRuns, summaries: dict[int, RunSummary], page: Path, console: Console
) -> None:
    """Write the report of the chosen run, then the page that compares all."""
    chosen = found.chosen(summaries)
    try:
        if chosen is not None and chosen.run.past is not None:
            report = write_run_report(console, open_run(chosen.run.past.path))
            print_path(console, f"report of seed {chosen.run.seed} ({chosen.because})", report)
        if len(summaries) > 1:
            past = _directories(found.finished)
            pairs = [(facts_of(past[seed]), summary) for seed, summary in summaries.items()]
            print_path(console, "comparison of all seeds", write_comparison(pairs, page))
    except KeyboardInterrupt:
        console.print(f"report interrupted: {called_as()} report {page.parent}", soft_wrap=True)
