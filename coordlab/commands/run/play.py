"""Plays one run of an experiment, and records it in a run directory.

A run directory gets a manifest (what was run, and how), the trace (all events of the run), a
journal (when each fault of the plan was injected and healed), and the results of the checks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment, microseconds, to_cluster_spec
from chaos.exploration.gc_pause import collecting_seldom
from chaos.results.manifest import run_command_line
from chaos.results.run_directory import (
    TRACE_FOLDER,
    RunDirectory,
    create_run_directory,
)
from chaos.results.run_trace import RunTrace
from chaos.run.live_checks import LiveChecks
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun, ProgressObserver
from cluster.runtime import RowObserver, Runtime
from cluster.spec import ListenerSpec
from cluster.trace.digest import TraceDigest
from cluster.trace.tail import WATERMARK_LAG_US, TraceTail
from results_schema.results import Results

VIRTUAL = "virtual"
"""The runtime that plays a run in this process with a simulated clock, as fast as it can."""
RAY = "ray"
"""The runtime that gives each broker and client a process of its own, in real time."""
LOCAL = "local"
"""The runtime that plays a run in this process, in real time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playable:
    """An experiment, and every option that its runs depend on, except the seed.

    - `name_on_command_line`: how the user named the experiment, such as `fencing` or `mine.yaml`.
    - `path`: the experiment's file.
    - `overrides`: the values of `--var`, such as `cluster.brokers=5`.
    - `time_limit_us`: the time of the run's clock at which the run ends; None: no limit.
    - `time_scale`: the speed of the run's clock; with 2.0 it goes twice as fast as a real clock.
    - `trace`: False to leave messages out of the trace, which then has only events of the nodes.
    """

    experiment: Experiment
    name_on_command_line: str
    path: Path
    overrides: tuple[str, ...]
    runtime: str
    ray_address: str
    time_limit_us: int | None
    time_scale: float
    trace: bool

    def command_line(self, seed: int) -> str:
        """Return the command that plays `seed` again with the same options."""
        return run_command_line(
            self.name_on_command_line,
            runtime=self.runtime,
            seed=seed,
            overrides=self.overrides,
            time_limit_us=self.time_limit_us,
            time_scale=self.time_scale,
            trace=self.trace,
            ray_address=self.ray_address,
        )

    def make_directory(self, runs: Path, seed: int, *, name: str | None = None) -> RunDirectory:
        """Make the directory of a run below `runs`.

        `name`: the directory's name; None to name it after the present time.
        Raises: NotARun if the directory cannot be made there.
        """
        return create_run_directory(
            runs,
            self.experiment,
            plan_of(self.experiment),
            seed=seed,
            runtime=self.runtime,
            replay=self.command_line(seed),
            experiment_file=str(self.path),
            time_scale=self.time_scale,
            name=name,
        )


def play_into(
    directory: RunDirectory, playable: Playable, *, progress: ProgressObserver | None = None
) -> Results:
    """Play a run, record it in `directory`, and return its results.

    Raises: NotRecorded if the directory could not be written. By then the cluster is stopped.
    """
    experiment = playable.experiment
    context = context_of(experiment, in_virtual_time=playable.runtime == VIRTUAL)
    checks = CheckSuite(context, experiment.checks)
    digest = TraceDigest()
    trace = RunTrace(directory)
    # The runtime passes every row of the trace to each observer. The checks look for violated
    # promises, and the RunTrace writes the row to the directory.
    observers: list[RowObserver] = [checks.observe, trace]
    if playable.runtime == VIRTUAL:
        # The digest is a hash of all rows. It shows whether two runs were the same. In real time no
        # two runs are the same, so a digest would be of no use.
        observers.append(digest)
    runtime = make_runtime(
        experiment,
        directory,
        observers,
        ray_address=playable.ray_address,
        time_scale=playable.time_scale,
        trace_messages=playable.trace,
    )
    try:
        # Except on Ray, the whole cluster lives in this process. So each garbage collection has
        # many objects to look at, and takes long.
        with collecting_seldom():
            results = ExperimentRun(
                experiment,
                plan_of(experiment),
                runtime,
                checks,
                seed=directory.manifest.seed,
                directory=directory,
                progress=progress,
                live_checks=_live_checks(playable, directory),
                time_limit_us=playable.time_limit_us,
            ).execute()
    finally:
        row_count = trace.close()
    if playable.runtime == VIRTUAL:
        directory.manifest.digest = digest.hexdigest()
    directory.manifest.clock_error_us = runtime.clock_error_us
    directory.manifest.losses = runtime.losses
    directory.write_manifest()
    # This call comes last, because it raises NotRecorded if any write to the directory has failed.
    directory.conclude(results, rows=row_count)
    return results


def _live_checks(playable: Playable, directory: RunDirectory) -> LiveChecks | None:
    """Return checks that read the trace while a run in real time goes on; None in virtual time.

    In virtual time all rows pass through this process, so the run's own CheckSuite sees them at
    once. In real time each node writes its rows into a file. These files are merged only at the end
    of the run. But the live view should show a violation earlier, so the live checks read the files
    as they grow.
    """
    if playable.runtime == VIRTUAL:
        return None
    # The checks need the rows of all files in the order of time. A node writes a row a moment late.
    # So the TraceTail holds each row back for some time, the lag. Meanwhile earlier rows of other
    # nodes arrive. The nodes are late in real time, but the lag is a time of the run's clock. A run
    # at double speed therefore needs a double lag.
    lag_us = round(WATERMARK_LAG_US * playable.time_scale)
    tail = TraceTail(directory.path / TRACE_FOLDER, lag_us=lag_us)
    experiment = playable.experiment
    return LiveChecks(CheckSuite(context_of(experiment), experiment.checks), tail.poll)


def make_runtime(
    experiment: Experiment,
    directory: RunDirectory,
    observers: Sequence[RowObserver],
    *,
    ray_address: str,
    time_scale: float = 1.0,
    trace_messages: bool = True,
    listener: ListenerSpec | None = None,
) -> Runtime:
    """Return the runtime that the directory's manifest names.

    `listener`: the address at which the brokers accept clients that are not part of the experiment.
    `up` needs this. None means that the brokers accept no such clients.
    """
    spec = msgspec.structs.replace(to_cluster_spec(experiment), listener=listener)
    manifest = directory.manifest
    if manifest.runtime == VIRTUAL:
        from cluster.virtual.runtime import VirtualRuntime  # noqa: PLC0415 - only if it is needed

        return VirtualRuntime(
            spec,
            seed=manifest.seed,
            run_id=manifest.run,
            observers=observers,
            trace_messages=trace_messages,
        )
    if manifest.runtime == LOCAL:
        from cluster.local.runtime import LocalRuntime  # noqa: PLC0415 - only if it is needed

        return LocalRuntime(
            spec,
            seed=manifest.seed,
            run_id=manifest.run,
            run_dir=directory.path,
            time_scale=time_scale,
            observers=observers,
            trace_messages=trace_messages,
        )
    from cluster.ray.machine_watch import SilenceLimits  # noqa: PLC0415 - it imports Ray
    from cluster.ray.runtime import RayRuntime  # noqa: PLC0415 - importing Ray takes a second

    return RayRuntime(
        spec,
        seed=manifest.seed,
        run_id=manifest.run,
        run_dir=directory.path,
        ray_address=ray_address,
        time_scale=time_scale,
        observers=observers,
        trace_messages=trace_messages,
        silence=SilenceLimits(
            silent_after_s=microseconds(experiment.run.machine_silent_after) / 1e6,
            lost_after_s=microseconds(experiment.run.machine_lost_after) / 1e6,
        ),
    )
