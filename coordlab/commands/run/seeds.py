"""`run --seeds`: plays one experiment with several seeds in virtual time, in worker processes.

1. `_play_all` gives the seeds to the worker processes. Each seed becomes a SeedRun.
2. The results of all seeds, a SeedRuns, are printed, or written as JSON or JUnit.
3. `_analyze` has Spark make the tables of all runs.
4. `_write_pages` writes the report of one run, and a page that compares all runs.

Steps 2 and 4 need the figures of each run, which are called its summary. The worker computes the
summary from the trace. If a trace is too large for this, Spark computes the summary in step 3, and
the figures are printed after that.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
"""The time for which the main process waits for a worker's answer before it looks for a Ctrl-C."""
_MAX_SEEDS_WITH_LINES = 40
"""The largest number of seeds for which each seed gets a line when it ends.

If there are more seeds, only seeds that did not pass get a line. On a terminal there are no lines,
but a bar.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsOptions:
    """The options of `run` that concern all seeds together.

    - `workers`: the number of worker processes; None for one on each processor.
    - `master`: the address of a Spark master; None for Spark in a process on this machine.
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
    # A worker could make the folder, too. But if the folder cannot be made, this is a mistake of
    # the user. So it is made here, and the user gets one message. In the workers, it would become a
    # failure of coordlab for each seed.
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotARun(f"no run directory can be made in {options.runs}: {error}") from error
    # The names of all run directories of this command begin with the present time.
    batch = timestamp(datetime.now(UTC))
    job = SeedJob(
        playable=playable,
        runs=options.runs,
        batch=batch,
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
    # Runs with a large trace have no summary yet.
    all_have_summaries = len(summaries) == len(seed_runs.finished)
    if all_have_summaries:
        _print_figures(seed_runs, summaries, console)
    print_notes(console, notes_of(playable.experiment))
    pattern = folder / seeds_pattern(batch)
    print_path(console, "run directories", pattern)

    summaries_of_spark = _analyze(options, seed_runs, pattern, console)
    if not all_have_summaries:
        # No figures were printed above. If Spark has run, it has computed the summaries of all
        # runs. Otherwise print at least the figures of the runs that have a summary.
        _print_figures(seed_runs, summaries_of_spark or summaries, console)
    if summaries_of_spark and options.report:
        _write_pages(seed_runs, summaries_of_spark, folder / f"{batch}-seeds.html", console)
    return seed_runs.exit_code


def _play_all(job: SeedJob, options: SeedsOptions, console: Console) -> SeedRuns:
    """Play every seed in worker processes, and return the results.

    After a Ctrl-C, some seeds were not played.
    """
    playable = job.playable
    runs = {seed: SeedRun(seed=seed, replay=playable.command_line(seed)) for seed in options.seeds}
    processors = os.cpu_count() or 1
    workers_wanted = processors if options.workers is None else options.workers
    process_count = min(workers_wanted, len(options.seeds))
    with (
        stop_on_ctrl_c() as stop_requested,
        _SeedProgress(console, len(options.seeds), wanted=not options.json) as seed_progress,
        WorkerProcesses(partial(play_seed, job), size=process_count) as workers,
    ):
        interrupted = _play_waiting_seeds(
            workers,
            waiting=deque(options.seeds),
            stop_requested=stop_requested,
            show=seed_progress.add,
            runs=runs,
            job=job,
        )
    return SeedRuns(
        experiment=playable.experiment.name,
        runtime=playable.runtime,
        runs=tuple(runs.values()),
        interrupted=interrupted,
    )


def _play_waiting_seeds(
    workers: WorkerProcesses,
    waiting: deque[int],
    stop_requested: Callable[[], bool],
    show: Callable[[SeedRun], None],
    runs: dict[int, SeedRun],
    job: SeedJob,
) -> bool:
    """Play the seeds that are waiting. Return True if a Ctrl-C ended the work early.

    After a Ctrl-C no other seed begins. The runs in progress heal their clusters and end.

    - `waiting`: the seeds to play. A seed is removed when a worker begins to play it.
    - `show`: called with each run that has ended.
    - `runs`: seed -> the run of this seed. At first these are runs that were not played. This
      function replaces each of them by the run that a worker has played.
    """
    playing: set[int] = set()
    interrupted = False
    while waiting or playing:
        if stop_requested() and not interrupted:
            interrupted = True
            waiting.clear()
            # The terminal sends a Ctrl-C only to processes of its own session. The workers are in
            # another session, so pass the Ctrl-C on to them.
            workers.interrupt()
        for worker in workers.idle():
            if waiting:
                seed = waiting.popleft()
                workers.give(worker, (seed,))
                playing.add(seed)
        for event in workers.wait(_POLL_S):
            (item,) = event.items  # a worker gets one seed at a time
            seed = number_of(item)
            playing.discard(seed)
            runs[seed] = _finished_run(runs[seed], event, job, interrupted=interrupted)
            show(runs[seed])
    return interrupted


def _finished_run(
    unplayed: SeedRun, event: Finished | Died, job: SeedJob, *, interrupted: bool
) -> SeedRun:
    """Return the run of a seed whose worker has answered (Finished) or died (Died).

    `unplayed`: the run before it was played. It has only the seed and the command that replays it.
    """
    match event:
        case Died():
            # The worker could not report the path of the run directory, but its name is known.
            path = job.runs / job.playable.experiment.name / job.name_of(unplayed.seed)
            # If a worker process dies after a Ctrl-C, this is no failure of coordlab.
            if interrupted:
                return _with_directory(unplayed, path)
            failure = f"the worker that played seed {unplayed.seed} died: {event.why}"
            return replace(_with_directory(unplayed, path), failure=failure)
        case Finished():
            played = decode_seed(event.answer)
            return _with_played(unplayed, played)


def _with_played(unplayed: SeedRun, played: PlayedSeed) -> SeedRun:
    """Return a run with the answer of its worker, and with the contents of its directory."""
    summary = None if played.summary is None else decode_summary(played.summary)
    run = replace(unplayed, failure=played.failure, summary=summary)
    if played.directory is None:
        return run
    return _with_directory(run, Path(played.directory))


def _with_directory(run: SeedRun, path: Path) -> SeedRun:
    """Return a run with the manifest and the results in its directory.

    A run that was broken off has no results, or not even a manifest. If the results exist but
    cannot be read, the error becomes the `failure` of the run, unless the run already has another
    failure.
    """
    try:
        past = open_run(path)
    except NotARun:
        return run
    try:
        return replace(run, past=past, results=past.results())
    except NotARun as error:
        return replace(run, past=past, failure=run.failure or str(error))


def _print_figures(
    seed_runs: SeedRuns, summaries: Mapping[int, RunSummary], console: Console
) -> None:
    """Print each figure as its median and range over the runs of these summaries."""
    if summaries:
        figures = seed_runs.figures(list(summaries.values()))
        print_seed_figures(console, figures, len(summaries))


class _SeedProgress:
    """Shows how many seeds have ended: by a bar on a terminal, elsewhere by a line for each seed.

    With `wanted=False`, it shows nothing.
    """

    def __init__(self, console: Console, total: int, *, wanted: bool) -> None:
        self._console = console
        self._total = total
        self._prints_lines = wanted and not console.is_terminal
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
        """Show that a seed has ended."""
        passed = run.state is SeedState.PASSED
        if not passed:
            self._not_passed += 1
        description = f"{self._not_passed} not passed" if self._not_passed else ""
        self._bar.update(self._task, advance=1, description=description)
        if self._prints_lines and (not passed or self._total <= _MAX_SEEDS_WITH_LINES):
            why = "" if passed else f": {run.why}"
            print_lines(self._console, [f"seed {run.seed} {run.state.value}{why}"])


def _analyze(
    options: SeedsOptions, seed_runs: SeedRuns, pattern: Path, console: Console
) -> dict[int, RunSummary] | None:
    """Have Spark make the tables of all finished runs, and return their summaries by seed.

    Return None if the user does not want tables, or if they could not be made.

    `pattern`: a path with `*` that stands for all run directories. It is the argument of commands
    that are printed for the user.
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
    return {run.seed: run.past for run in runs if run.past is not None}


def _write_pages(
    seed_runs: SeedRuns, summaries: dict[int, RunSummary], page: Path, console: Console
) -> None:
    """Write the report of the chosen run, and then the page that compares all runs."""
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
