"""`shrink`: the options of shrinking a schedule that fails."""

from pathlib import Path

import click
from rich.console import Console

from coordlab.commands.shrink.execution import CHECKS, ShrinkOptions, shrink
from coordlab.options import with_examples
from coordlab.parameters import Duration, OneOf
from coordlab.schedules import DEFAULT_SPACE

EXIT_CODES_OF_SHRINKING = (
    "Exit codes: 0 shrunk, 2 it does not fail (any more), 130 interrupted (the best so far is "
    "written), 254 bad arguments or file, 255 internal error."
)


@click.command(
    "shrink",
    cls=with_examples(
        "shrink runs/explorations/standard/findings/fencing-1.yaml",
        "shrink 4711 --space standard -o fencing.yaml",
        "shrink mine.yaml --check durable_commits --time-limit 2m",
    ),
    epilog=EXIT_CODES_OF_SHRINKING,
)
@click.argument("schedule", metavar="FILE|SEED")
@click.option(
    "--space",
    default=DEFAULT_SPACE,
    show_default=True,
    metavar="NAME|FILE",
    help="The space that SEED is drawn from.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Seed of the network; default: the file's `replay:`, or SEED itself.",
)
@click.option(
    "--check",
    type=OneOf(CHECKS),
    metavar="NAME",
    help="Keep the violation of this check; default: the earliest.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write; default: beside the file, or here, as `NAME.shrunk.yaml`.",
)
@click.option(
    "--time-limit", type=Duration(), default="30s", show_default=True, help="End after this time."
)
@click.option(
    "--robustness",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Count under how many of N other network seeds it fails, as far as time allows.",
)
@click.option("--json", is_flag=True, help="Print one JSON document instead. No live view.")
def shrink_command(
    schedule: str,
    space: str,
    seed: int | None,
    check: str | None,
    output: Path | None,
    time_limit: int,
    robustness: int,
    json: bool,
) -> int:
    """Make a failing schedule small: fewest faults, fewest nodes, shortest time, roundest values.

    FILE is an experiment or a finding of `explore`; SEED is drawn from a space. The same violation
    must still show: the same check with the same claim. What is left is an experiment that a person
    can read, and run in virtual time or on Ray.
    """
    options = ShrinkOptions(
        schedule=schedule,
        space=space,
        seed=seed,
        check=check,
        output=output,
        time_limit_us=time_limit,
        robustness=robustness,
        json=json,
    )
    return shrink(options, Console())
