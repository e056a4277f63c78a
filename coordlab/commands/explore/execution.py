"""`coordlab explore`: from a space and limits to an exploration's directory and a summary.

Wiring only: the search is chaos's, the workers are cluster's, the terminal is `explore_view`'s.
"""

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console

from chaos.exploration.batches import check_code, play_seeds
from chaos.exploration.finding_files import finding_text
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
from cluster.ray.fan_out import ThisProcess, Workers, WorkersFailed
from coordlab.commands.explore.junit import junit_of_exploration
from coordlab.commands.explore.live_view import ExploreView
from coordlab.commands.explore.summary import print_exploration
from coordlab.junit import begin_junit, write_junit
from coordlab.options import PROGRAM
from coordlab.signals import stop_on_ctrl_c

DEFAULT_SPACE = "standard"
DEFAULT_COUNT = 1_000
DEFAULT_RECHECK_PERCENT = 5.0
LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreOptions:
    """What the command line says; None: it does not, and a resumed exploration has its own.

    Units: `time_limit_us` is real time. `workers` None: one a processor.
    """

    space: str | None = None
    count: int | None = None
    first_seed: int | None = None
    time_limit_us: int | None = None
    stop_after: int | None = None
    resume: Path | None = None
    workers: int | None = None
    batch: int | None = None
    recheck_percent: float | None = None
    ray_address: str = LOCAL
    explorations: Path = EXPLORATIONS_ROOT
    junit: Path | None = None
    json: bool = False


def explore(options: ExploreOptions, console: Console) -> int:
    """Search, tell what was found, and return the exit code.

    Raises: before anything is started ExperimentError, NotAnExploration, CannotResume,
    JunitNotWritable; WorkersFailed, after what was finished is stored.
    """
    if options.junit is not None:
        begin_junit(options.junit)
    store = _store(options)
    space = store.space()
    manifest = store.manifest
    if options.resume is not None:
        store.drop_torn_line()
    tally = Tally(manifest.recheck_percent)
    for record in store.records():
        tally.take(record)
    limits = Limits(
        first_seed=manifest.first_seed,
        count=_count(options, manifest.count),
        time_limit_s=None if options.time_limit_us is None else options.time_limit_us / 1e6,
        stop_after=options.stop_after,
        batch=options.batch,
    )
    files = FindingFiles(store, space)
    for group in tally.groups.values():
        files.write(group)
    results = _search(options, store, space, tally, limits, files, console)
    store.write_results(results)
    if options.junit is not None:
        write_junit(options.junit, junit_of_exploration(manifest, results, store.path))
    if options.json:
        console.file.write(_as_json(store, results))
    else:
        print_exploration(console, store.path, manifest, results)
    return results.exit_code


class FindingFiles:
    """Writes the replay file of a finding, and again when a better example was found."""

    def __init__(self, store: ExplorationStore, space: Space) -> None:
        self._store = store
        self._space = space

    def write(self, group: FindingGroup) -> None:
        """Write the file of a finding."""
        text = finding_text(group, self._space, self._store.manifest.commit)
        self._store.write_finding(group.name, text)


def _search(
    options: ExploreOptions,
    store: ExplorationStore,
    space: Space,
    tally: Tally,
    limits: Limits,
    files: FindingFiles,
    console: Console,
) -> ExplorationResults:
    view = ExploreView(console, space.name, limits.time_limit_s)
    with (
        stop_on_ctrl_c() as stop_requested,
        nullcontext() if options.json else view,
        _workers(options, space, store.manifest.code) as workers,
    ):
        search = Search(
            tally,
            workers,
            limits,
            clock=time.monotonic,
            write=store.append,
            stop_requested=stop_requested,
            observer=(lambda progress: None) if options.json else view,
            on_group=files.write,
        )
        try:
            stop = search.run()
        except WorkersFailed as error:
            raise WorkersFailed(
                f"{error}. What was finished is kept: {PROGRAM} explore --resume {store.path}"
            ) from error
        progress = search.progress()
    return results_of(
        tally,
        stop,
        store.path,
        elapsed_s=progress.elapsed_s,
        runs_per_minute=progress.runs_per_minute,
        workers=progress.workers,
    )


def _store(options: ExploreOptions) -> ExplorationStore:
    """Return the exploration that is begun, or goes on.

    Raises: ExperimentError, NotAnExploration, CannotResume.
    """
    if options.resume is None:
        return create_exploration(
            options.explorations,
            load_space(options.space or DEFAULT_SPACE),
            first_seed=options.first_seed or 0,
            count=_new_count(options),
            recheck_percent=_or(options.recheck_percent, DEFAULT_RECHECK_PERCENT),
        )
    store = open_exploration(options.resume)
    manifest = store.manifest
    for what, asked, has in (
        ("space", options.space, manifest.space),
        ("--first-seed", options.first_seed, manifest.first_seed),
        ("--recheck", options.recheck_percent, manifest.recheck_percent),
    ):
        if asked is not None and asked != has:
            raise CannotResume(
                f"{store.path} was begun with {what} {has}, and goes on with it; got {asked}"
            )
    check_resumable(store)
    return store


def _new_count(options: ExploreOptions) -> int | None:
    """Return how many seeds a new exploration has: without any limit, a thousand."""
    if options.count is not None:
        return options.count
    return DEFAULT_COUNT if options.time_limit_us is None else None


def _count(options: ExploreOptions, had: int | None) -> int | None:
    return had if options.count is None else options.count


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _workers(options: ExploreOptions, space: Space, code: str) -> Workers:
    work = partial(play_seeds, space)
    size = options.workers
    if options.ray_address == LOCAL:
        size = size or os.cpu_count() or 1
        if size == 1:
            return ThisProcess(work)
    from cluster.ray.tasks import RayWorkers  # noqa: PLC0415 - importing Ray takes a second

    return RayWorkers(options.ray_address, work, size=size, check=partial(check_code, code))


def _as_json(store: ExplorationStore, results: ExplorationResults) -> str:
    document = {
        "exploration_directory": str(store.path),
        "manifest": store.manifest,
        "results": results,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
