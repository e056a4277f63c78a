"""`run`: from an experiment to a run directory, a verdict and a closing summary.

Wiring only: the experiment is chaos's, the cluster is the runtime's, figures and tables are the
pipeline's.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from chaos.results.run_directory import RunDirectory, open_run
from coordlab.analysis import analyze_runs, java_notice, sum_up, write_run_report
from coordlab.commands.run.play import LOCAL, RAY, VIRTUAL, Playable, play_into
from coordlab.commands.run.seeds import SeedsOptions, run_seeds
from coordlab.console import print_document, print_path
from coordlab.junit import begin_junit, junit_of_failure, junit_of_run, write_junit
from coordlab.options import (
    as_one,
    json_option,
    junit_option,
    master_option,
    ray_address_option,
    runs_option,
    var_option,
    with_examples,
)
from coordlab.parameters import MAX_TIME_SCALE, DurationParam, OneOf, Seeds, TimeScale
from coordlab.program import EXIT_CODES_HELP, called_as, to_paste
from coordlab.signals import terminate_as_ctrl_c
from coordlab.views.run_view import run_view
from coordlab.views.summary_view import print_figures, print_phases, print_verdict, verdict_text
from pipeline.in_memory.summary import ROWS_AT_ONCE
from pipeline.summary.caveats import caveats_of
from pipeline.summary.figures import RunSummary
from results_schema.results import Results, RunOutcome, Verdict

MAX_WORKERS = 1_000
RUNTIMES = (RAY, LOCAL, VIRTUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run.

    Units: `time_limit_us` is on the run's clock, which is `time_scale` times a real one's speed.
    """

    experiment: str
    runtime: str
    seed: int | None  # None: the experiment file's, or 0
    seeds: tuple[int, ...] | None  # None: one run
    workers: int | None  # None: one a processor
    var: tuple[str, ...]
    runs: Path
    ray_address: str
    time_limit_us: int | None
    time_scale: float
    trace: bool
    analyze: bool
    report: bool
    master: str | None
    junit: Path | None
    json: bool


@click.command(
    "run",
    cls=with_examples(
        "run coordinator_crash --runtime virtual --seed 7",
        "run coordinator_crash --runtime virtual --seeds 1..20",
        "run coordinator_crash --var cluster.brokers=5",
        "run mine.yaml --no-analyze --junit build/mine.xml",
    ),
    epilog=EXIT_CODES_HELP,
)
@click.argument("experiment")
@click.option(
    "--runtime",
    type=OneOf(RUNTIMES),
    default=RAY,
    show_default=True,
    metavar="|".join(RUNTIMES),
    help="Real processes on Ray, or this process alone: in real time (local), in virtual time.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of every random choice; default: that of the file's `replay`, or 0.",
)
@click.option(
    "--seeds",
    type=Seeds(),
    metavar="1..20",
    help="Play several seeds, in virtual time and in parallel (`1..20`, `1,5,9`, `1..5,9`), and "
    "print each figure as its median and range.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=MAX_WORKERS),
    metavar="N",
    help="With --seeds: processes that play; default one a processor.",
)
@var_option
@runs_option
@ray_address_option
@click.option(
    "--time-limit",
    "time_limit_us",
    type=DurationParam(),
    help="End the run after this time of its clock, e.g. `5m`.",
)
@click.option(
    "--time-scale",
    type=TimeScale(),
    default=1.0,
    show_default=True,
    metavar="N",
    help=f"Let the run's clock go N times faster than a real one, 1 to {MAX_TIME_SCALE}; not "
    "in virtual time.",
)
@click.option(
    "--trace/--no-trace",
    default=True,
    show_default=True,
    help="Write every message into the trace, or events only.",
)
@click.option(
    "--analyze/--no-analyze",
    default=True,
    show_default=True,
    help="Make tables with Spark when the run ends; the summary needs none.",
)
@click.option(
    "--report/--no-report",
    default=True,
    show_default=True,
    help="Write report.html into the run directory after the analysis.",
)
@master_option
@junit_option(
    ", however the run ends: a test case for each check, and `run`, which is an error if the "
    "verdict is unknown. Green if and only if the verdict is pass. With --seeds a suite for each"
)
@json_option(
    "run_directory, manifest, results, caveats (what was felt despite a pass); with --seeds "
    "experiment, runtime, exit_code, seeds, checks, figures, runs. No live view, no analysis"
)
@as_one(RunOptions)
def run_command(options: RunOptions) -> int:
    """Run an experiment: start its cluster, break it by the plan, heal it, check its promises.

    EXPERIMENT is a name that `list` shows, or a file.
    """
    _check_seeds(options)
    if options.runtime == VIRTUAL and options.time_scale != 1.0:
        raise click.BadParameter(
            f"virtual time takes no real time to be scaled; expected `--runtime local` or `ray` "
            f"beside it, or no `--time-scale`, got `{options.time_scale:g}`",
            param_hint="`--time-scale`",
        )
    if options.junit is None:
        return _run(options, Console())
    begin_junit(options.junit)
    try:
        return _run(options, Console())
    except BaseException as error:  # Ctrl-C too: CI shows what it finds
        if not options.junit.exists():
            write_junit(options.junit, junit_of_failure(options.experiment, error))
        raise


def _check_seeds(options: RunOptions) -> None:
    """Refuse what cannot be together. Raises: click.BadParameter."""
    if options.seeds is None:
        if options.workers is not None:
            raise click.BadParameter(
                "one run has no workers; expected `--seeds` beside it", param_hint="`--workers`"
            )
        return
    if options.seed is not None:
        raise click.BadParameter(
            "expected one of `--seed` and `--seeds`, got both", param_hint="`--seeds`"
        )
    if options.runtime != VIRTUAL:
        raise click.BadParameter(
            f"several seeds are played in virtual time; expected `--runtime {VIRTUAL}` beside it, "
            f"got `{options.runtime}`, which is the default",
            param_hint="`--seeds`",
        )


def _run(options: RunOptions, console: Console) -> int:
    """Run one experiment and return the exit code.

    Raises: ExperimentError before anything is started; JunitNotWritable.
    """
    loaded = load_experiment(options.experiment, options.var)
    # With --json, standard output is one document and nothing else.
    warnings_console = Console(stderr=True) if options.json else console
    for warning in loaded.warnings:
        warnings_console.print(
            f"[yellow]unwise:[/] {escape(str(warning))}", highlight=False, soft_wrap=True
        )
    playable = Playable(
        experiment=loaded.experiment,
        named=options.experiment,
        path=loaded.path,
        overrides=options.var,
        runtime=options.runtime,
        ray_address=options.ray_address,
        time_limit_us=options.time_limit_us,
        time_scale=options.time_scale,
        trace=options.trace,
    )
    if options.seeds is not None:
        return run_seeds(_seeds_options(options, options.seeds), playable, console)
    directory = playable.make_directory(options.runs, _seed(options, loaded.experiment))
    with terminate_as_ctrl_c():
        results = _play(options, playable, directory, console)
        if options.junit is not None:
            junit = junit_of_run(directory.manifest, results, directory.path)
            write_junit(options.junit, junit)
        if options.json:
            summary = sum_up(Console(stderr=True), directory.path, results, max_rows=ROWS_AT_ONCE)
            passed = results.verdict is Verdict.PASS
            document = {
                "run_directory": str(directory.path),
                "manifest": directory.manifest,
                "results": results,
                "caveats": caveats_of(summary) if passed else (),
            }
            print_document(console, document, indented=True)
            return results.exit_code
        _conclude(options, directory, results, console)
    return results.exit_code


def _seeds_options(options: RunOptions, seeds: tuple[int, ...]) -> SeedsOptions:
    return SeedsOptions(
        seeds=seeds,
        workers=options.workers,
        runs=options.runs,
        analyze=options.analyze,
        report=options.report,
        master=options.master,
        junit=options.junit,
        json=options.json,
    )


def _seed(options: RunOptions, experiment: Experiment) -> int:
    """Return the seed of the command line, else that of a replay file, else 0."""
    if options.seed is not None:
        return options.seed
    return 0 if experiment.replay is None else experiment.replay.seed


def _conclude(
    options: RunOptions, directory: RunDirectory, results: Results, console: Console
) -> None:
    """Print the verdict with the figures from the trace; then Spark makes tables and the report.

    Raises: what made the analysis or the report fail.
    """
    rows = ROWS_AT_ONCE if options.analyze and java_notice(directory.path) is None else None
    summary = _sum_up(directory, results, console, max_rows=rows)
    print_figures(console, directory.manifest, results, summary)
    print_path(console, "run directory", directory.path)
    console.print(Text(f"again: {to_paste(directory.manifest.replay)}"), soft_wrap=True)
    analysed = _analyze(options, directory, results, console)
    if analysed is not None and summary is None:
        print_phases(console, analysed)
    if options.report and analysed is not None:
        _report(directory, console)


def _sum_up(
    directory: RunDirectory, results: Results, console: Console, *, max_rows: int | None
) -> RunSummary | None:
    """Print the verdict, with what was felt all the same, and return the summary.

    While it is made a terminal shows the verdict alone; a summary that fails keeps nobody from it.
    """
    summary = None
    known = verdict_text(results).append("  summing up the trace", style="dim")
    try:
        with console.status(known) if console.is_terminal else nullcontext():
            summary = sum_up(console, directory.path, results, max_rows=max_rows)
    finally:
        print_verdict(console, directory.manifest, results, summary)
    return summary


def _report(directory: RunDirectory, console: Console) -> None:
    try:
        path = write_run_report(console, open_run(directory.path))
    except OSError as error:
        _say_not_written(console, directory, "report", error)
        return
    except KeyboardInterrupt:
        console.print(f"report interrupted: {called_as()} report {directory.path}")
        return
    print_path(console, "report", path)


def _play(
    options: RunOptions, playable: Playable, directory: RunDirectory, console: Console
) -> Results:
    if options.json:
        return play_into(directory, playable)
    name = playable.experiment.name
    with run_view(console, name, options.runtime) as view:
        return play_into(directory, playable, progress=view)


def _analyze(
    options: RunOptions, directory: RunDirectory, results: Results, console: Console
) -> RunSummary | None:
    """Make the tables and return their summary; None where unwanted, or not to be had now."""
    if not options.analyze or options.json or results.outcome is RunOutcome.INTERNAL_ERROR:
        return None
    if results.outcome is RunOutcome.INTERRUPTED:
        console.print(f"to analyse it: {called_as()} analyze {directory.path}", soft_wrap=True)
        return None
    notice = java_notice(directory.path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return None
    try:
        return analyze_runs(console, [directory.path], master=options.master)[0]
    except OSError as error:
        _say_not_written(console, directory, "analyze", error)
        return None
    except KeyboardInterrupt:
        console.print("analysis interrupted; the run itself is complete")
        return None


def _say_not_written(
    console: Console, directory: RunDirectory, command: str, error: OSError
) -> None:
    """Say that what follows a run could not be written: the run's verdict stands."""
    path = error.filename or directory.path
    console.print(
        Text(
            f"{path} cannot be written: {error.strerror or error}; the run itself is recorded. "
            f"Then: {called_as()} {command} {directory.path}"
        ),
        soft_wrap=True,
    )
