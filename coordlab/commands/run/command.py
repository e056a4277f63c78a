"""`run`: plays an experiment, and prints whether the cluster kept its promises.

This module has the options, and the steps for a single run: the command loads the experiment, plays
it into a run directory, and prints the verdict and a closing summary. With `--seeds` the command
plays several runs; see `coordlab.commands.run.seeds`.
"""

from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from chaos.results.run_directory import RunDirectory
from coordlab.analysis import sum_up
from coordlab.commands.run.conclusion import conclude_run
from coordlab.commands.run.play import LOCAL, RAY, VIRTUAL, Playable, play_into
from coordlab.commands.run.seeds import SeedsOptions, run_seeds
from coordlab.console import print_document
from coordlab.junit import begin_junit, junit_of_failure, junit_of_run, write_junit
from coordlab.options import (
    gather_into,
    json_option,
    junit_option,
    master_option,
    ray_address_option,
    runs_option,
    var_option,
    with_examples,
)
from coordlab.parameters import MAX_TIME_SCALE, DurationParam, OneOf, Seeds, TimeScale
from coordlab.program import EXIT_CODES_HELP
from coordlab.signals import terminate_as_ctrl_c
from coordlab.views.run_view import run_view
from pipeline.in_memory.summary import ROWS_AT_ONCE
from pipeline.summary.caveats import caveats_of
from results_schema.results import Results, Verdict

MAX_WORKERS = 1_000
"""The largest value of `--workers`."""
RUNTIMES = (RAY, LOCAL, VIRTUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The argument and the options of `run`.

    - `seed`: None if the user did not give it. Then `_chosen_seed` chooses a seed.
    - `seeds`: (1, 2, 3) for `--seeds 1..3`; None for a single run.
    - `workers`: the number of processes that play the seeds; None for one on each processor.
    - `time_limit_us`: the time of the run's clock at which the run ends; None: no limit.
    - `time_scale`: the speed of the run's clock; with 2.0 it goes twice as fast as a real clock.
    """

    experiment: str
    runtime: str
    seed: int | None
    seeds: tuple[int, ...] | None
    workers: int | None
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
@gather_into(RunOptions)
def run_command(options: RunOptions) -> int:
    """Run an experiment: start its cluster, break it by the plan, heal it, check its promises.

    EXPERIMENT is a name that `list` shows, or a file.
    """
    _check_that_options_fit(options)
    if options.runtime == VIRTUAL and options.time_scale != 1.0:
        raise click.BadParameter(
            f"virtual time takes no real time to be scaled; expected `--runtime local` or `ray` "
            f"beside it, or no `--time-scale`, got `{options.time_scale:g}`",
            param_hint="`--time-scale`",
        )
    if options.junit is None:
        return _load_and_run(options, Console())
    begin_junit(options.junit)
    try:
        return _load_and_run(options, Console())
    except BaseException as error:
        # Without a JUnit file, a CI system would show no run at all. So any failure is written into
        # a JUnit file, even a Ctrl-C, which is a BaseException. If the file already exists, it has
        # the results of the run, and a later step has failed. Then these results must stay.
        if not options.junit.exists():
            write_junit(options.junit, junit_of_failure(options.experiment, error))
        raise


def _check_that_options_fit(options: RunOptions) -> None:
    """Check `--seed`, `--seeds`, `--workers` and `--runtime`, which depend on each other.

    Raises: click.BadParameter if they do not fit together.
    """
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


def _load_and_run(options: RunOptions, console: Console) -> int:
    """Load the experiment, play it, print the results, and return the exit code.

    Raises: ExperimentError if the experiment's file has a mistake; JunitNotWritable if the JUnit
    file cannot be written.
    """
    loaded = load_experiment(options.experiment, options.var)
    # With --json, standard output has one JSON document and nothing else.
    warnings_console = Console(stderr=True) if options.json else console
    for warning in loaded.warnings:
        warnings_console.print(
            f"[yellow]unwise:[/] {escape(str(warning))}", highlight=False, soft_wrap=True
        )
    playable = Playable(
        experiment=loaded.experiment,
        name_on_command_line=options.experiment,
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
    directory = playable.make_directory(options.runs, _chosen_seed(options, loaded.experiment))
    with terminate_as_ctrl_c():
        results = _play_with_view(options, playable, directory, console)
        if options.junit is not None:
            junit = junit_of_run(directory.manifest, results, directory.path)
            write_junit(options.junit, junit)
        if options.json:
            # A caveat says what users of a group noticed although the run passed, such as a long
            # time without commits. Caveats need the summary of the run. For a trace of more than
            # ROWS_AT_ONCE rows, the summary would take too long. Such a run has no caveats here.
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
        conclude_run(
            console,
            directory,
            results,
            analyze=options.analyze,
            report=options.report,
            master=options.master,
        )
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


def _chosen_seed(options: RunOptions, experiment: Experiment) -> int:
    """Return the seed to play: from the command line, or from the file's key `replay`, or 0."""
    if options.seed is not None:
        return options.seed
    return 0 if experiment.replay is None else experiment.replay.seed


def _play_with_view(
    options: RunOptions, playable: Playable, directory: RunDirectory, console: Console
) -> Results:
    """Play the run. A live view shows its progress, except with --json."""
    if options.json:
        return play_into(directory, playable)
    name = playable.experiment.name
    with run_view(console, name, options.runtime) as view:
        return play_into(directory, playable, progress=view)
