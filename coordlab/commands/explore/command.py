"""`explore`: the options of a search, and what cannot go together among them."""

from pathlib import Path

import click
from rich.console import Console

from chaos.exploration.store import EXPLORATIONS_ROOT
from coordlab.commands.explore.execution import (
    DEFAULT_COUNT,
    DEFAULT_RECHECK_PERCENT,
    ExploreOptions,
    explore,
)
from coordlab.options import with_examples
from coordlab.parameters import Duration

MAX_WORKERS = 10_000
EXIT_CODES_OF_A_SEARCH = (
    "Exit codes: 0 no violation, 1 a promise was violated, 2 unknown (no run proved anything), "
    "130 interrupted, 254 bad arguments or file, 255 the lab failed in some run, or a seed gave "
    "two results."
)


@click.command(
    "explore",
    cls=with_examples(
        "explore --count 300",
        "explore --time-limit 10m --stop-after 1",
        "explore reference --first-seed 5000 --count 100 --workers 1",
        "explore --ray-address head:6379 --count 100000",
        "explore --resume runs/explorations/standard",
    ),
    epilog=EXIT_CODES_OF_A_SEARCH,
)
@click.argument("space", required=False)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Play this many seeds; default {DEFAULT_COUNT:,}, with --time-limit as many as it "
    "allows. With --resume: that many in all.",
)
@click.option(
    "--first-seed", type=click.IntRange(min=0), metavar="N", help="Begin here; default 0."
)
@click.option("--time-limit", type=Duration(), help="Begin no new run after this time, e.g. `10m`.")
@click.option(
    "--stop-after",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop when N different findings were made. Findings are counted by what happened, not by "
    "seed.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Go on with an exploration that was interrupted, killed, or is to be longer; a space's "
    "folder means its latest.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=MAX_WORKERS),
    metavar="N",
    help="Processes that play; default one a processor. 1 plays in this process, without Ray.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Seeds that a worker is given at once; default what takes it about a second.",
)
@click.option(
    "--recheck",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="Play so many of the seeds a second time, in another process, and compare; default "
    f"{DEFAULT_RECHECK_PERCENT:g}.",
)
@click.option(
    "--ray-address",
    default="local",
    show_default=True,
    help="A running Ray cluster, e.g. `host:6379`; `local` starts one here.",
)
@click.option(
    "--explorations",
    type=click.Path(path_type=Path, file_okay=False),
    default=EXPLORATIONS_ROOT,
    show_default=True,
    help="Folder of the explorations' directories.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write JUnit XML for CI: a test case for each check, and `explore`, which is an error if "
    "nothing was proven or the lab failed.",
)
@click.option(
    "--json",
    is_flag=True,
    help="Print one JSON document instead: exploration_directory, manifest, results. No live view.",
)
def explore_command(
    space: str | None,
    count: int | None,
    first_seed: int | None,
    time_limit: int | None,
    stop_after: int | None,
    resume: Path | None,
    workers: int | None,
    batch: int | None,
    recheck: float | None,
    ray_address: str,
    explorations: Path,
    junit: Path | None,
    json: bool,
) -> int:
    """Search fault schedules: draw configuration and plan from seeds, run each in virtual time.

    SPACE says what is drawn: a name in `explorations/` (default: standard), or a file. What
    violates a promise is kept as a file that `replay`, `shrink` and `run` take.
    """
    options = ExploreOptions(
        space=space,
        count=count,
        first_seed=first_seed,
        time_limit_us=time_limit,
        stop_after=stop_after,
        resume=resume,
        workers=workers,
        batch=batch,
        recheck_percent=recheck,
        ray_address=ray_address,
        explorations=explorations,
        junit=junit,
        json=json,
    )
    return explore(options, Console())
