"""`run --seeds`: plays one experiment with several seeds in virtual time, in worker processes.

1. Worker processes play a SeedJob, and return a PlayedSeed for each seed.
2. SeedRuns collects these results, which are printed, or written as JSON or JUnit.
3. Spark makes the tables of all runs.
4. The report of one run, and a page that compares all runs, are written.

A summary has the figures of one run. The worker computes the summary, unless the trace (the run's
recorded events) has too many rows. Then Spark computes the summary together with the tables.
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
"""Longest wait for an answer of a worker. After each wait Ctrl-C is handled."""
_MAX_LINES = 40
"""Without a bar, each seed has a line if there are no more seeds than this. Otherwise only seeds
that did not pass have a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsOptions:
    """Options of `run --seeds`.

    - `workers`: the number of worker processes; None: one for each processor.
    - `master`: the address of a Spark master; None: Spark on this machine.
    """

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

    Raises: NotARun if the folder of the run directories cannot be made; JunitNotWritable if the
    JUnit file cannot be written.
    """
    folder = options.runs / playable.experiment.name
    # If the folder cannot be made, this is a mistake of the user, and is reported once. If the
    # workers made the folder, each seed would report a failure of coordlab.
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotARun(f"no run directory can be made in {options.runs}: {error}") from error
    # The names of all run directories of this command begin with `group`.
    group = timestamp(datetime.now(UTC))
    job = SeedJob(
        playable=playable,
        runs=options.runs,
        group=group,
        digits=len(str(max(options.seeds))),
    )
    seed_runs = _play_all(job, options, console)

    if options.junit is not None:
        write_junit(options.junit, seed_runs.junit())
    if options.json:
        print_document(console, seed_runs.document(), indented=True)
        return seed_runs.exit_code

    print_seed_runs(console, seed_runs)
    summaries = {run.seed: run.summary for run in seed_runs.finished if run.summary is not None}
    # A run with a large trace has no summary yet, because its figures come with Spark's tables.
    complete = len(summaries) == len(seed_runs.finished)
    if complete and summaries:
        print_seed_figures(console, seed_runs.figures(list(summaries.values())), len(summaries))
    print_notes(console, notes_of(playable.experiment))
    pattern = folder / seeds_pattern(group)
    print_path(console, "run directories", pattern)

    analysed = _analyze(options, seed_runs, pattern, console)
    # If some runs had no summary, no figures were printed above. Spark's summaries are of all runs.
    # If Spark has computed none, the figures are those of the runs that have a summary.
    known = analysed or summaries
    if not complete and known:
        shown = list(known.values())
        print_seed_figures(console, seed_runs.figures(shown), len(shown))
    if analysed and options.report:
        _write_pages(seed_runs, analysed, folder / f"{group}-seeds.html", console)
    return seed_runs.exit_code


def _play_all(job: SeedJob, options: SeedsOptions, console: Console) -> SeedRuns:
    """Play every seed in worker processes, and return the results. Ctrl-C ends this early."""
    playable = job.playable
    runs = {seed: SeedRun(seed=seed, replay=playable.command_line(seed)) for seed in options.seeds}
    size = min(options.workers or os.cpu_count() or 1, len(options.seeds))
    with (
        stop_on_ctrl_c() as stop_requested,
        _SeedProgress(console, len(options.seeds), wanted=not options.json) as seed_progress,
        WorkerProcesses(partial(play_seed, job), size=size) as workers,
    ):
        interrupted = _play(
            workers, deque(options.seeds), stop_requested, seed_progress.add, runs, job
        )
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
    """Play the seeds of `waiting`; return True if the user interrupted this.

    After a Ctrl-C no other seed begins. The runs in progress heal their clusters and end.

    - `waiting`: the seeds to play. This function removes each seed that it begins.
    - `runs`: an entry for each seed, which says that the seed is not played. This function replaces
      the entry by the result of the seed.
    - `show`: is called with each result.
    """
    playing: set[int] = set()
    interrupted = False
    while waiting or playing:
        if stop_requested() and not interrupted:
            interrupted = True
            waiting.clear()
            # The workers are not in the session of the terminal, so a Ctrl-C does not reach them.
            workers.interrupt()
        for worker in workers.idle():
            if waiting:
                seed = waiting.popleft()
                workers.give(worker, (seed,))
                playing.add(seed)
        for event in workers.wait(_POLL_S):
            # A worker gets one item at a time, so the event is about one seed.
            seed = number_of(event.items[0])
            playing.discard(seed)
            runs[seed] = _seed_run(runs[seed], event, job, interrupted=interrupted)
            show(runs[seed])
    return interrupted


def _seed_run(
    unplayed: SeedRun, event: Finished | Died, job: SeedJob, *, interrupted: bool
) -> SeedRun:
    """Return the run of a seed after its worker has finished or died."""
    match event:
        case Died():
            # The worker died before it could answer with the path.
            path = job.runs / job.playable.experiment.name / job.name_of(unplayed.seed)
            # Ctrl-C may end a worker process. That is no failure of coordlab.
            if interrupted:
                return _with_directory(unplayed, path)
            failure = f"the worker that played seed {unplayed.seed} died: {event.why}"
            return replace(_with_directory(unplayed, path), failure=failure)
        case Finished():
            played = decode_seed(event.answer)
            return _with_answer(unplayed, played)


def _with_answer(unplayed: SeedRun, played: PlayedSeed) -> SeedRun:
    """Return the run of a seed with the worker's answer and the content of its directory."""
    run = replace(
        unplayed,
        failure=played.failure,
        summary=None if played.summary is None else decode_summary(played.summary),
    )
    return run if played.directory is None else _with_directory(run, Path(played.directory))


def _with_directory(run: SeedRun, path: Path) -> SeedRun:
    """Return a run with the manifest and results in its directory, as far as they can be read.

    If results exist but cannot be read, the error becomes the `failure` of the run, unless the run
    has a failure already.
    """
    try:
        past = open_run(path)
    except NotARun:
        return run
    try:
        return replace(run, past=past, results=past.results())
    except NotARun as error:
        return replace(run, past=past, failure=run.failure or str(error))


class _SeedProgress:
    """Progress of the seeds: a bar on a terminal, elsewhere a line for each finished seed."""

    def __init__(self, console: Console, total: int, *, wanted: bool) -> None:
        self._console = console
        self._total = total
        self._lines = wanted and not console.is_terminal
        self._not_passed = 0
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

    def __enter__(self) -> "_SeedProgress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def add(self, run: SeedRun) -> None:
        """Show a seed that is finished."""
        passed = run.state is SeedState.PASSED
        if not passed:
            self._not_passed += 1
        description = f"{self._not_passed} not passed" if self._not_passed else ""
        self._bar.update(self._task, advance=1, description=description)
        if self._lines and (not passed or self._total <= _MAX_LINES):
            why = "" if passed else f": {run.why}"
            print_lines(self._console, [f"seed {run.seed} {run.state.value}{why}"])


def _analyze(
    options: SeedsOptions, seed_runs: SeedRuns, pattern: Path, console: Console
) -> dict[int, RunSummary] | None:
    """Make the tables of all finished runs, and return their summaries by seed.

    `pattern`: a path with `*` that matches the run directories, for printed commands.
    Returns: None if the tables are not wanted, or were not made.
    """
    directories = _directories(seed_runs.finished)
    if not options.analyze or not directories:
        return None
    if seed_runs.interrupted:
        command = f"to analyse them: {called_as()} analyze {pattern}"
        console.print(Text(command), soft_wrap=True)
        return None
    notice = java_notice(pattern)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return None
    try:
        paths = [directory.path for directory in directories.values()]
        summaries = analyze_runs(console, paths, master=options.master)
    except KeyboardInterrupt:
        console.print("analysis interrupted; the runs themselves are complete")
        return None
    return dict(zip(directories, summaries, strict=True))


def _directories(runs: Sequence[SeedRun]) -> dict[int, PastRun]:
    """Return the run directories by seed."""
    return {run.seed: run.past for run in runs if run.past is not None}


def _write_pages(
    seed_runs: SeedRuns, summaries: dict[int, RunSummary], page: Path, console: Console
) -> None:
    """Write the report of the chosen run, then the page that compares all runs."""
    chosen = seed_runs.chosen(summaries)
    try:
        if chosen is not None and chosen.run.past is not None:
            report = write_run_report(console, open_run(chosen.run.past.path))
            print_path(console, f"report of seed {chosen.run.seed} ({chosen.because})", report)
        if len(summaries) > 1:
            directories = _directories(seed_runs.finished)
            pairs = [(facts_of(directories[seed]), summary) for seed, summary in summaries.items()]
            print_path(console, "comparison of all seeds", write_comparison(pairs, page))
    except KeyboardInterrupt:
        console.print(f"report interrupted: {called_as()} report {page.parent}", soft_wrap=True)
