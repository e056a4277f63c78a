"""`explore`: plays thousands of random schedules, and keeps those that violate a promise.

A space is a file that says what is random: the number of brokers, the faults, and so on. Each seed
draws one schedule from the space. Worker processes play the seeds in virtual time (a simulated
clock), and the search collects the results. Several seeds that violate a promise in the same way
are one finding. The schedule of the simplest of these seeds is written as a file, which `replay`
and `shrink` accept.

A search can run for hours, and can be interrupted and resumed. The directory of an exploration,
which is called its store, has everything that is needed to resume it: the manifest has the settings
of the search, and there is a record of each run.
"""

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from chaos.exploration.batches import check_code, play_seeds
from chaos.exploration.finding_files import finding_text
from chaos.exploration.guided.guidance import Guidance
from chaos.exploration.results import ExplorationResults, results_of
from chaos.exploration.running_totals import FindingGroup, Tally
from chaos.exploration.search import Limits, Search
from chaos.exploration.space import Space, load_space
from chaos.exploration.store import (
    EXPLORATIONS_ROOT,
    CannotResume,
    ExplorationStore,
    check_resumable,
    create_exploration,
    open_exploration,
)
from cluster.fan_out import ThisProcess, Workers, WorkersFailed
from coordlab.commands.explore.junit import junit_of_exploration
from coordlab.commands.explore.live_view import exploration_view
from coordlab.commands.explore.summary import print_exploration
from coordlab.console import print_document
from coordlab.junit import begin_junit, write_junit
from coordlab.options import (
    DEFAULT_SPACE,
    gather_into,
    json_option,
    junit_option,
    ray_address_option,
    var_option,
    with_examples,
)
from coordlab.parameters import DurationParam
from coordlab.program import called_as
from coordlab.signals import stop_on_ctrl_c

DEFAULT_COUNT = 1_000
"""The number of seeds that a search plays if the user sets neither --count nor --time-limit."""
DEFAULT_RECHECK_PERCENT = 5.0
MAX_WORKERS = 10_000
LOCAL_RAY = "local"
"""The value of --ray-address with which the search starts Ray on this machine."""
EXIT_CODES_OF_A_SEARCH = (
    "Exit codes: 0 no violation, 1 a promise was violated, 2 unknown (no run proved anything, or "
    "a run proved nothing although the space does not allow that), "
    "130 interrupted, 141 the reader of the output is gone, 254 bad arguments or file, 255 the lab "
    "failed in some run, a seed gave two results, or the search could not be recorded."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreOptions:
    """The argument and options of `explore`.

    Most options are None if the user did not give them. Then a new search takes the default, and a
    resumed search takes the value with which it was begun.

    - `workers`: the number of processes that play seeds; None for one on each processor.
    - `recheck`: the percentage of seeds that are played twice, to see that both traces are equal.
    - `mutated`: the percentage of seeds that change an earlier plan instead of drawing a new plan.
    - `time_limit_us`: the limit of the search's time, in real time.
    """

    space: str | None
    count: int | None
    first_seed: int | None
    time_limit_us: int | None
    stop_after: int | None
    resume: Path | None
    workers: int | None
    batch: int | None
    recheck: float | None
    mutated: float | None
    var: tuple[str, ...]
    ray_address: str
    explorations: Path
    junit: Path | None
    json: bool


@click.command(
    "explore",
    cls=with_examples(
        "explore --count 300",
        "explore --time-limit 10m --stop-after 1",
        "explore reference --first-seed 5000 --count 100 --workers 1",
        "explore --count 300 --var cluster.config.min.insync.replicas=1",
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
    help=f"Play this many seeds; default {DEFAULT_COUNT:,}, with --time-limit as many as the time "
    "allows. With --resume: this many in all.",
)
@click.option(
    "--first-seed", type=click.IntRange(min=0), metavar="N", help="First seed; default 0."
)
@click.option(
    "--time-limit",
    "time_limit_us",
    type=DurationParam(),
    help="Begin no new run after this time, e.g. `10m`.",
)
@click.option(
    "--stop-after",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N different findings. Seeds whose violations have the same evidence count as "
    "one finding.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Continue an exploration that was interrupted or killed, or extend a finished one; the "
    "folder of a space stands for its latest exploration.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=MAX_WORKERS),
    metavar="N",
    help="Processes that play seeds; default one per processor. 1 plays in this process, without "
    "Ray.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Seeds that a worker takes at once; default as many as it plays in about a second.",
)
@click.option(
    "--recheck",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="Play this share of the seeds a second time, in another process, and compare; default "
    f"{DEFAULT_RECHECK_PERCENT:g}.",
)
@click.option(
    "--mutated",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="For this share of the seeds, change a plan that reached a rare situation instead of "
    "drawing a new plan; default the space's value.",
)
@var_option
@ray_address_option
@click.option(
    "--explorations",
    type=click.Path(path_type=Path, file_okay=False),
    default=EXPLORATIONS_ROOT,
    show_default=True,
    help="Folder of the explorations' directories.",
)
@junit_option(
    ": a test case for each check, and `explore`, which is an error if nothing was proven or the "
    "lab failed"
)
@json_option("exploration_directory, manifest, results. No live view")
@gather_into(ExploreOptions)
def explore_command(options: ExploreOptions) -> int:
    """Search fault schedules: draw configuration and plan from seeds, run each in virtual time.

    SPACE is a file that describes what is drawn, or the name of one in `explorations/` (default:
    standard). A schedule that violates a promise is kept as a file, which `replay`, `shrink` and
    `run` accept.
    """
    console = Console()
    if options.junit is not None:
        begin_junit(options.junit)
    store = _open_store(options)
    if options.resume is not None:
        # A search that was killed may have written only a part of its last record.
        store.drop_torn_line()
    results = _play_until_the_end(options, store, console)
    store.write_results(results)
    if options.junit is not None:
        write_junit(options.junit, junit_of_exploration(store.manifest, results, store.path))
    if options.json:
        document = {
            "exploration_directory": str(store.path),
            "manifest": store.manifest,
            "results": results,
        }
        print_document(console, document, indented=True)
    else:
        print_exploration(console, store.path, store.manifest, results)
    return results.exit_code


def _play_until_the_end(
    options: ExploreOptions, store: ExplorationStore, console: Console
) -> ExplorationResults:
    """Play seeds until a limit is reached or the user presses Ctrl-C, and return the results.

    The record of each run is appended to the store at once. So nothing is lost if the process is
    killed.

    Raises: WorkersFailed. The message has the command that resumes the search.
    """
    manifest = store.manifest
    space = store.space()
    tally, guidance = _learn_from_records(store)
    limits = Limits(
        first_seed=manifest.first_seed,
        count=manifest.count if options.count is None else options.count,
        time_limit_s=None if options.time_limit_us is None else options.time_limit_us / 1e6,
        stop_after=options.stop_after,
        batch=options.batch,
    )

    def write_finding(group: FindingGroup) -> None:
        """Write the file of a finding, or replace it when the search has a simpler example."""
        store.write_finding(group.name, finding_text(group, space, manifest.commit))

    # A search that was killed may have recorded a run, but not yet written the file of its finding.
    # So the files of all recorded findings are written again.
    for group in tally.groups.values():
        write_finding(group)

    view = exploration_view(console, space.name, shown=not options.json)
    with (
        stop_on_ctrl_c() as stop_requested,
        view,
        _make_workers(options, space, manifest.code) as workers,
    ):
        search = Search(
            tally,
            workers,
            limits,
            clock=time.monotonic,
            write=store.append,
            stop_requested=stop_requested,
            observer=view,
            on_group=write_finding,
            guidance=guidance,
        )
        try:
            stop = search.run()
        except WorkersFailed as error:
            raise WorkersFailed(
                f"{error}. What was finished is kept: {called_as()} explore --resume {store.path}"
            ) from error
        progress = search.progress()
    return results_of(
        tally,
        stop,
        store.path,
        elapsed_s=progress.elapsed_s,
        runs_per_minute=progress.runs_per_minute,
        workers=progress.workers,
        may_be_unknown=space.may_be_unknown,
        guidance=guidance,
    )


def _learn_from_records(store: ExplorationStore) -> tuple[Tally, Guidance]:
    """Return a Tally, which counts runs, and a Guidance, which chooses the seeds that mutate plans.

    The Tally and the Guidance learn from each run. So in a resumed search, they first see the
    recorded runs.
    """
    manifest = store.manifest
    tally = Tally(manifest.recheck_percent)
    guidance = Guidance(manifest.mutated_percent / 100, manifest.first_seed)
    for record in store.records():
        tally.take(record)
        guidance.take(record)
    return tally, guidance


def _open_store(options: ExploreOptions) -> ExplorationStore:
    """Create the store of a new exploration, or open the store of the exploration to resume.

    Raises: ExperimentError if the space has a mistake; NotAnExploration if there is nothing to
    resume; CannotResume if the options or the code have changed.
    """
    if options.resume is None:
        space = load_space(options.space or DEFAULT_SPACE, options.var)
        recheck = DEFAULT_RECHECK_PERCENT if options.recheck is None else options.recheck
        mutated = 100 * space.mutated if options.mutated is None else options.mutated
        return create_exploration(
            options.explorations,
            space,
            first_seed=options.first_seed or 0,
            count=_new_count(options),
            recheck_percent=recheck,
            mutated_percent=mutated,
            overrides=options.var,
        )
    store = open_exploration(options.resume)
    manifest = store.manifest
    # These options decide what the seeds of an exploration do. So a resumed search has to keep
    # their values.
    for option, wanted, recorded in (
        ("space", options.space, manifest.space),
        ("--first-seed", options.first_seed, manifest.first_seed),
        ("--recheck", options.recheck, manifest.recheck_percent),
        ("--mutated", options.mutated, manifest.mutated_percent),
        # Without --var, `options.var` is (), not None.
        ("--var", options.var or None, manifest.overrides),
    ):
        if wanted is not None and wanted != recorded:
            raise CannotResume(
                f"{store.path} was begun with {option} {_option_text(recorded)}, "
                f"and goes on with it; got {_option_text(wanted)}"
            )
    check_resumable(store)
    return store


def _option_text(value: object) -> str:
    """Return the value of an option for a message: 100 as `100`, () as `nothing`."""
    if isinstance(value, tuple):
        return " ".join(value) if value else "nothing"
    return str(value)


def _new_count(options: ExploreOptions) -> int | None:
    """Return the number of seeds of a new exploration; None if only its time is limited."""
    if options.count is not None:
        return options.count
    return DEFAULT_COUNT if options.time_limit_us is None else None


def _make_workers(options: ExploreOptions, space: Space, code: str) -> Workers:
    """Return the workers that play the seeds: this process, or processes on Ray.

    `code`: the digest of the source code that began the search. The code on another machine may be
    different, and would give other results. So each worker compares the digest of its own code with
    `code`.
    """
    work = partial(play_seeds, space)
    size = options.workers  # None: RayWorkers takes the number of processors of the Ray cluster
    if options.ray_address == LOCAL_RAY:
        if size is None:
            size = os.cpu_count() or 1
        if size == 1:
            return ThisProcess(work)
    from cluster.ray.tasks import RayWorkers  # noqa: PLC0415 - importing Ray takes a second

    return RayWorkers(options.ray_address, work, size=size, check=partial(check_code, code))
