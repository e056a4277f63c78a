"""Plays one run of an experiment into its directory: trace, journal, results, manifest.

The trace has a row for each event of the run. The journal has an entry for each fault of the plan.
The manifest is the file of a run directory that says what the run is.

A run has one of three runtimes. VIRTUAL plays it in one process, in virtual time, which is the
run's own simulated clock. LOCAL plays it in one process, in real time. RAY plays it in many
processes, in real time.
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
RAY = "ray"
LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Playable:
    """An experiment, and all options that determine its runs, except the seed.

    - `named`: the name or path by which the command line named the experiment.
    - `path`: the experiment's file.
    - `overrides`: values of `--var`, which replace settings of the file.
    - `trace`: False leaves the messages out of the trace.
    - `time_limit_us`: microseconds on the run's clock after which the run ends; None: no limit.
    - `time_scale`: speed of the run's clock, as a multiple of real time.
    """

    experiment: Experiment
    named: str
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
            self.named,
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

        `name`: the directory's name; None: a name from the present time.
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

    Raises: NotRecorded if the directory could not be written; the cluster is stopped even then.
    """
    experiment = playable.experiment
    context = context_of(experiment, in_virtual_time=playable.runtime == VIRTUAL)
    suite = CheckSuite(context, experiment.checks)  # the checks of this run
    digest = TraceDigest()  # a hash over the rows of the trace
    trace = RunTrace(directory)
    # The runtime calls each observer with each row of the trace.
    observers: list[RowObserver] = [suite.observe, trace]
    if playable.runtime == VIRTUAL:
        # A digest shows whether two runs have equal traces. In real time no two runs have.
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
        # Each garbage collection scans the objects of the whole cluster, which takes long.
        with collecting_seldom():
            results = ExperimentRun(
                experiment,
                plan_of(experiment),
                runtime,
                suite,
                seed=directory.manifest.seed,
                directory=directory,
                progress=progress,
                live_checks=_live_checks(playable, directory),
                time_limit_us=playable.time_limit_us,
            ).execute()
    finally:
        rows = trace.close()
    if playable.runtime == VIRTUAL:
        directory.manifest.digest = digest.hexdigest()
    directory.manifest.clock_error_us = runtime.clock_error_us
    directory.manifest.losses = runtime.losses
    directory.write_manifest()
    # The last step, because it raises NotRecorded if any write of this run has failed.
    directory.conclude(results, rows=rows)
    return results


def _live_checks(playable: Playable, directory: RunDirectory) -> LiveChecks | None:
    """Return the checks during a run in real time; None in virtual time.

    In virtual time the runtime calls the run's CheckSuite for each row. In real time the nodes
    write their rows into files, which the live checks read while the run goes on.
    """
    if playable.runtime == VIRTUAL:
        return None
    # A TraceTail returns a row only after a lag, because another node's file may still get an
    # earlier row. A file is late by some real time, but the lag is in time of the run. If the run's
    # clock is faster, the same real time is a longer time of the run.
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

    `listener`: the address at which brokers listen for clients from outside the cluster; None:
    brokers do not listen.
    """
    spec = msgspec.structs.replace(to_cluster_spec(experiment), listener=listener)
    manifest = directory.manifest
    if manifest.runtime == VIRTUAL:
        from cluster.virtual.runtime import VirtualRuntime  # noqa: PLC0415 - the only one needed

        return VirtualRuntime(
            spec,
            seed=manifest.seed,
            run_id=manifest.run,
            observers=observers,
            trace_messages=trace_messages,
        )
    if manifest.runtime == LOCAL:
        from cluster.local.runtime import LocalRuntime  # noqa: PLC0415 - the only one needed

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
