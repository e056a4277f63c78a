"""The commands: arguments in, exit code out. What they do stands in modules of their own."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaos.experiment import microseconds
from chaos.loader import list_experiments, load_experiment
from chaos.problems import ExperimentError, near_miss, one_of
from chaos.run_directory import DEFAULT_ROOT, NotARun, PastRun, list_runs, open_run
from chaos.verdict import (
    EXIT_BAD_ARGUMENTS,
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_PASS,
)
from cluster.runtime import ClusterStartError
from coordlab.analysis import analyze_runs, java_notice
from coordlab.doctor import CHECKS
from coordlab.doctor_view import print_checks
from coordlab.run_command import RUNTIMES, RunOptions, run
from coordlab.summary_view import print_phases

EXIT_CODES_HELP = (
    "Exit codes: 0 pass, 1 a promise was violated, 2 unknown (the run proves nothing), "
    "130 interrupted, 254 bad arguments or experiment file, 255 internal error."
)
app = typer.Typer(
    name="coordlab",
    help="A chaos lab for Kafka-style group coordination. Break a cluster on purpose and see, phase "
    "by phase, what its consumer groups lived through.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunsRoot = Annotated[Path, typer.Option("--runs", help="Folder of the run directories.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--var",
        metavar="KEY=VALUE",
        help="Change one value of the file: a dotted path into it, e.g. `run.after_faults=5s`.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark master, e.g. `spark://host:7077`; default: Spark on this machine."),
]


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error ends here, told once."""
    errors = Console(stderr=True)
    try:
        code = app(list(arguments), standalone_mode=False, prog_name="python -m coordlab")
    except ExperimentError as error:
        for problem in error.problems:
            errors.print(escape(str(problem)), highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    except NotARun as error:
        errors.print(escape(str(error)), highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    except click.exceptions.NoArgsIsHelpError as error:
        errors.print(escape(error.format_message()), highlight=False)
        return EXIT_BAD_ARGUMENTS
    except click.ClickException as error:
        error.show(file=sys.stderr)
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


@app.command("run", epilog=EXIT_CODES_HELP)
def run_command(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment, or its file.")],
    runtime: Annotated[
        str, typer.Option(help=f"Where the cluster runs: {', '.join(RUNTIMES)}.")
    ] = ("ray"),
    seed: Annotated[int, typer.Option(help="Seed of every random choice.", min=0)] = 0,
    var: Overrides = None,
    runs: RunsRoot = DEFAULT_ROOT,
    ray_address: Annotated[
        str, typer.Option(help="A running Ray cluster, e.g. `host:6379`; `local` starts one here.")
    ] = "local",
    time_limit: Annotated[
        str | None, typer.Option(help="End the run after this time of its clock, e.g. `5m`.")
    ] = None,
    trace: Annotated[
        bool, typer.Option(help="Write every message into the trace, not only events.")
    ] = True,
    analyze: Annotated[bool, typer.Option(help="Analyse the run with Spark when it ends.")] = True,
    master: Master = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead; no live view.")
    ] = False,
) -> int:
    """Run an experiment: start its cluster, break it by the plan, heal it, check its promises."""
    if runtime not in RUNTIMES:
        raise _bad("--runtime", one_of(RUNTIMES), runtime, near_miss(runtime, RUNTIMES))
    options = RunOptions(
        experiment=experiment,
        runtime=runtime,
        seed=seed,
        overrides=tuple(var or ()),
        runs=runs,
        ray_address=ray_address,
        time_limit_us=None if time_limit is None else _duration("--time-limit", time_limit),
        trace=trace,
        analyze=analyze,
        master=master,
        json=json,
    )
    return run(options, Console())


@app.command("analyze")
def analyze_command(
    run_directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run directories; default: the latest run."),
    ] = None,
    runs: RunsRoot = DEFAULT_ROOT,
    master: Master = None,
) -> int:
    """Compute the tables of finished or interrupted runs with Spark, and print their phases."""
    console = Console()
    past = [open_run(path) for path in run_directories] if run_directories else [_latest(runs)]
    notice = java_notice(past[0].path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    for summary in analyze_runs(console, [each.path for each in past], master=master):
        console.print(f"\n{summary.run}: {summary.events:,} events", style="bold", highlight=False)
        print_phases(console, summary)
        console.print(f"tables: {summary.directory / 'tables'}", highlight=False, soft_wrap=True)
    return EXIT_PASS


@app.command("list")
def list_command(runs: RunsRoot = DEFAULT_ROOT) -> int:
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
def validate_command(
    experiments: Annotated[list[str], typer.Argument(help="Names of experiments, or their files.")],
    var: Overrides = None,
) -> int:
    """Check experiment files without starting anything; tell what is wrong, and what is unwise."""
    console = Console()
    problems = []
    for name in experiments:
        try:
            loaded = load_experiment(name, tuple(var or ()))
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
def doctor_command(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CHECK", help=f"Only these: {', '.join(CHECKS)}."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what this machine lacks for runs and analyses, and how to get it."""
    for name in only or ():
        if name not in CHECKS:
            raise _bad("--only", one_of(CHECKS), name, near_miss(name, CHECKS))
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


def _duration(option: str, text: str) -> int:
    try:
        return microseconds(text)
    except ValueError as error:
        raise _bad(option, "a duration such as `90s` or `5m`", text, None) from error


def _bad(option: str, expected: str, found: str, near: str | None) -> click.BadParameter:
    hint = "" if near is None else f"; did you mean `{near}`?"
    return click.BadParameter(f"expected {expected}, got `{found}`{hint}", param_hint=option)
