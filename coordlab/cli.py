"""The commands: arguments in, exit code out. What they do stands in modules of their own."""

import traceback
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaos.loader import list_experiments, load_experiment
from chaos.manifest import RunStatus
from chaos.problems import ExperimentError, Problem
from chaos.run_directory import DEFAULT_ROOT, NotARun, PastRun, list_runs, open_run
from chaos.verdict import (
    EXIT_BAD_ARGUMENTS,
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_PASS,
)
from cluster.runtime import ClusterStartError
from coordlab.analysis import analyze_runs, java_notice, salvage
from coordlab.doctor import CHECKS
from coordlab.doctor_view import print_checks
from coordlab.parameters import MAX_TIME_SCALE, Duration, OneOf, TimeScale
from coordlab.run_command import RUNTIMES, RunOptions, run
from coordlab.summary_view import print_phases

EXIT_CODES_HELP = (
    "Exit codes: 0 pass, 1 a promise was violated, 2 unknown (the run proves nothing), "
    "130 interrupted, 254 bad arguments or experiment file, 255 internal error."
)
HELP_WIDTH = 100


runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_ROOT,
    show_default=True,
    help="Folder of the run directories.",
)
var_option = click.option(
    "--var",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change one value of the file: a dotted path into it, e.g. `run.after_faults=5s`.",
)
master_option = click.option(
    "--master", help="Spark master, e.g. `spark://host:7077`; default: Spark on this machine."
)


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error ends here, told once."""
    errors = Console(stderr=True)
    try:
        code = app.main(list(arguments), prog_name="python -m coordlab", standalone_mode=False)
    except ExperimentError as error:
        for problem in error.problems:
            errors.print(escape(str(problem)), highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    except NotARun as error:
        errors.print(escape(str(error)), highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    except click.ClickException as error:
        error.show()
        return EXIT_BAD_ARGUMENTS
    except (click.Abort, KeyboardInterrupt):
        errors.print("interrupted")
        return EXIT_INTERRUPTED
    except ClusterStartError as error:
        errors.print(f"the cluster could not be started: {escape(str(error))}", soft_wrap=True)
        return EXIT_INTERNAL_ERROR
    except Exception:
        errors.print("coordlab itself failed; this says nothing about Kafka:")
        errors.print(escape(traceback.format_exc()), highlight=False)
        return EXIT_INTERNAL_ERROR
    return code if isinstance(code, int) else EXIT_PASS


@click.group(
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
)
@click.version_option(package_name="coordlab")
def app() -> None:
    """Break a Kafka-style cluster on purpose and see what its consumer groups lived through.

    A chaos lab for group coordination: an experiment file goes in, a cluster runs on Ray or in
    virtual time, faults hit it, and every phase of the failover is measured.
    """


@app.command("run", epilog=EXIT_CODES_HELP)
@click.argument("experiment")
@click.option(
    "--runtime",
    type=OneOf(RUNTIMES),
    default="ray",
    show_default=True,
    metavar="|".join(RUNTIMES),
    help="Real processes on Ray, or virtual time in this process.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of every random choice.",
)
@var_option
@runs_option
@click.option(
    "--ray-address",
    default="local",
    show_default=True,
    help="A running Ray cluster, e.g. `host:6379`; `local` starts one here.",
)
@click.option(
    "--time-limit", type=Duration(), help="End the run after this time of its clock, e.g. `5m`."
)
@click.option(
    "--time-scale",
    type=TimeScale(),
    default=1.0,
    show_default=True,
    metavar="N",
    help=f"Let the run's clock go N times faster than a real one, 1 to {MAX_TIME_SCALE}; with Ray "
    "only.",
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
    help="Analyse the run with Spark when it ends.",
)
@master_option
@click.option("--json", is_flag=True, help="Print one JSON document instead; no live view.")
def run_command(
    experiment: str,
    runtime: str,
    seed: int,
    var: tuple[str, ...],
    runs: Path,
    ray_address: str,
    time_limit: int | None,
    time_scale: float,
    trace: bool,
    analyze: bool,
    master: str | None,
    json: bool,
) -> int:
    """Run an experiment: start its cluster, break it by the plan, heal it, check its promises.

    EXPERIMENT is a name that `list` shows, or a file.
    """
    if runtime != "ray" and time_scale != 1.0:
        raise click.BadParameter(
            f"virtual time takes no real time to be scaled; expected `--runtime ray` beside it, or "
            f"no `--time-scale`, got `{time_scale:g}`",
            param_hint="`--time-scale`",
        )
    options = RunOptions(
        experiment=experiment,
        runtime=runtime,
        seed=seed,
        overrides=var,
        runs=runs,
        ray_address=ray_address,
        time_limit_us=time_limit,
        time_scale=time_scale,
        trace=trace,
        analyze=analyze,
        master=master,
        json=json,
    )
    return run(options, Console())


@app.command("analyze")
@click.argument("run_directories", metavar="[RUN]...", nargs=-1, type=click.Path(path_type=Path))
@runs_option
@master_option
def analyze_command(run_directories: tuple[Path, ...], runs: Path, master: str | None) -> int:
    """Compute the tables of finished or interrupted runs with Spark, and print their phases.

    RUN is a run directory; without one, the latest run is analysed.
    """
    console = Console()
    past = [open_run(path) for path in run_directories] if run_directories else [_latest(runs)]
    notice = java_notice(past[0].path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    ended_badly = {
        each.path.resolve(): each.manifest.status
        for each in past
        if each.manifest.status in {RunStatus.INTERRUPTED, RunStatus.FAILED}
    }
    for each in past:
        salvage(each, console)
    for summary in analyze_runs(console, [each.path for each in past], master=master):
        heading = f"\n{summary.run}: {summary.events:,} events"
        if (status := ended_badly.get(summary.directory.resolve())) is not None:
            heading += f" ({status})"
        console.print(heading, style="bold", highlight=False)
        print_phases(console, summary)
        console.print(f"tables: {summary.directory / 'tables'}", highlight=False, soft_wrap=True)
    return EXIT_PASS


@app.command("list")
@runs_option
def list_command(runs: Path) -> int:
    """List the experiments that can be run by name, and past runs with their verdicts."""
    console = Console()
    table = Table(box=None, pad_edge=False, title="experiments", title_justify="left")
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("question")
    for listed in list_experiments():
        table.add_row(
            listed.name, f"[red]{escape(listed.problem)}[/]" if listed.problem else listed.question
        )
    console.print(table)
    past = list(list_runs(runs))
    if not past:
        console.print(f"\nno runs in {runs} yet", highlight=False)
        return EXIT_PASS
    console.print()
    console.print(_runs_table(past))
    return EXIT_PASS


@app.command("validate")
@click.argument("experiments", metavar="EXPERIMENT...", nargs=-1, required=True)
@var_option
def validate_command(experiments: tuple[str, ...], var: tuple[str, ...]) -> int:
    """Check experiment files without starting anything; tell what is wrong, and what is unwise."""
    console = Console()
    problems: list[Problem] = []
    for name in experiments:
        try:
            loaded = load_experiment(name, var)
        except ExperimentError as error:
            problems += error.problems
            continue
        for warning in loaded.warnings:
            console.print(
                f"[yellow]unwise:[/] {escape(str(warning))}", highlight=False, soft_wrap=True
            )
        console.print(
            f"[green]ok[/] {escape(str(loaded.path))}: {loaded.experiment.name}",
            highlight=False,
            soft_wrap=True,
        )
    if problems:
        raise ExperimentError(problems)
    return EXIT_PASS


@app.command("doctor")
@click.option(
    "--only",
    type=OneOf(tuple(CHECKS)),
    multiple=True,
    metavar="CHECK",
    help=f"Only these checks: {', '.join(CHECKS)}.",
)
@click.option("--json", is_flag=True, help="Print JSON.")
def doctor_command(only: tuple[str, ...], json: bool) -> int:
    """Say what this machine lacks for runs and analyses, and how to get it."""
    checks = tuple(CHECKS[name]() for name in only or CHECKS)
    console = Console()
    if json:
        console.file.write(msgspec.json.encode(checks).decode() + "\n")
    else:
        print_checks(console, checks)
    return EXIT_PASS if all(check.ok for check in checks) else 1


def _latest(root: Path) -> PastRun:
    past = list(list_runs(root))
    if not past:
        raise NotARun(f"there is no run in {root}; `python -m coordlab run EXPERIMENT` makes one")
    return max(past, key=lambda each: each.manifest.started_at)


def _runs_table(past: Sequence[PastRun]) -> Table:
    table = Table(box=None, pad_edge=False, title="runs", title_justify="left")
    for heading in ("run", "runtime", "seed", "status", "verdict"):
        table.add_column(heading, no_wrap=True)
    for each in past:
        manifest = each.manifest
        try:
            results = each.results()
        except NotARun:
            results = None
        status = "incomplete" if each.incomplete and results is None else str(manifest.status)
        table.add_row(
            manifest.run,
            manifest.runtime,
            str(manifest.seed),
            status,
            "-" if results is None else str(results.verdict),
        )
    return table
