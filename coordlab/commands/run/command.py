"""`run`: the options of a run, and what cannot go together among them."""

from pathlib import Path

import click
from rich.console import Console

from coordlab.commands.run.execution import RUNTIMES, RunOptions, run
from coordlab.options import (
    EXIT_CODES_HELP,
    master_option,
    runs_option,
    var_option,
    with_examples,
)
from coordlab.parameters import MAX_TIME_SCALE, Duration, OneOf, TimeScale


@click.command(
    "run",
    cls=with_examples(
        "run coordinator_crash --runtime virtual --seed 7",
        "run coordinator_crash --var cluster.brokers=5",
        "run mine.yaml --no-analyze --junit build/mine.xml",
    ),
    epilog=EXIT_CODES_HELP,
)
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
    help="Seed of every random choice; default: that of the file's `replay`, or 0.",
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
@click.option(
    "--report/--no-report",
    default=True,
    show_default=True,
    help="Write report.html into the run directory after the analysis.",
)
@master_option
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write JUnit XML for CI, however the run ends: a test case for each check, and `run`, "
    "which is an error if the verdict is unknown. Green if and only if the verdict is pass.",
)
@click.option(
    "--json",
    is_flag=True,
    help="Print one JSON document instead: run_directory, manifest, results. No live view, no "
    "analysis.",
)
def run_command(
    experiment: str,
    runtime: str,
    seed: int | None,
    var: tuple[str, ...],
    runs: Path,
    ray_address: str,
    time_limit: int | None,
    time_scale: float,
    trace: bool,
    analyze: bool,
    report: bool,
    master: str | None,
    junit: Path | None,
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
        report=report,
        master=master,
        junit=junit,
        json=json,
    )
    return run(options, Console())
