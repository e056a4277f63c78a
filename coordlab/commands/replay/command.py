"""`replay`: a run in virtual time once more, from a file or a seed."""

from pathlib import Path

import click
from rich.console import Console

from coordlab.commands.replay.execution import ReplayOptions, replay
from coordlab.options import json_option, master_option, runs_option, with_examples
from coordlab.parameters import Moment
from coordlab.schedules import DEFAULT_SPACE

space_option = click.option(
    "--space",
    default=DEFAULT_SPACE,
    show_default=True,
    metavar="NAME|FILE",
    help="The space that a seed is drawn from.",
)


@click.command(
    "replay",
    cls=with_examples(
        "replay findings/fencing-1.yaml",
        "replay findings/fencing-1.yaml --until 31.5s",
        "replay findings/fencing-1.yaml --break-at 31.402118s",
        "replay 4711 --space standard --report",
    ),
    epilog="Exit codes: 0 pass, 1 a promise was violated, 2 unknown, 130 interrupted, 254 refused "
    "or bad arguments, 255 internal error: the same code gave another trace.",
)
@click.argument("schedule", metavar="FILE|SEED")
@space_option
@runs_option
@click.option(
    "--until",
    type=Moment(),
    metavar="TIME",
    help="End the run before what happens at this time of its clock, e.g. `31.5s`, and tell what "
    "each group, broker and member is doing.",
)
@click.option(
    "--break-at",
    type=Moment(),
    metavar="TIME",
    help="Open the debugger there, with the runtime and the cluster's state in scope.",
)
@click.option("--report", is_flag=True, help="Analyse the run with Spark and write its report.")
@click.option(
    "--force", is_flag=True, help="Play it though the code or Python is another than the file's."
)
@master_option
@json_option("schedule, run_directory, compared, changed, stamp, played")
def replay_command(
    schedule: str,
    space: str,
    runs: Path,
    until: int | None,
    break_at: int | None,
    report: bool,
    force: bool,
    master: str | None,
    json: bool,
) -> int:
    """Play a schedule in virtual time again and compare its trace, byte for byte.

    FILE is an experiment file that `explore` or `shrink` wrote; any other is played with seed 0,
    with nothing to compare. SEED is drawn from a space. The run is written as `run` writes it.
    """
    if until is not None and break_at is not None:
        raise click.UsageError("--until ends the run, --break-at lets it go on: give one of them")
    if json and (until is not None or break_at is not None or report):
        raise click.UsageError("--json prints one document; not with --until, --break-at, --report")
    options = ReplayOptions(
        schedule=schedule,
        space=space,
        runs=runs,
        force=force,
        until_us=until,
        break_at_us=break_at,
        report=report,
        master=master,
        json=json,
    )
    return replay(options, Console())
