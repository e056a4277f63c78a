"""`coordlab run`: from an experiment to a run directory, a verdict and a closing summary.

Wiring only: the experiment is chaos's, the cluster is the runtime's, the phases are Spark's.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment, to_cluster_spec
from chaos.results.manifest import replay_command
from chaos.results.run_directory import (
    EVENTS_FILE,
    TRACE_FOLDER,
    RunDirectory,
    create_run_directory,
    open_run,
)
from chaos.run.live_checks import LiveChecks
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.runtime import RowObserver, Runtime
from cluster.trace.digest import TraceDigest
from cluster.trace.parquet import ParquetTraceWriter
from cluster.trace.tail import WATERMARK_LAG_US, TraceTail
from coordlab.analysis import analyze_runs, java_notice
from coordlab.console import print_path
from coordlab.junit import begin_junit, junit_of_failure, junit_of_run, write_junit
from coordlab.reports import write_run_report
from coordlab.signals import terminate_as_ctrl_c
from coordlab.views.live import LiveView
from coordlab.views.summary_view import print_summary
from pipeline.summary.figures import RunSummary
from results_schema.results import Results, RunOutcome

RUNTIMES = ("ray", "virtual")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line says about a run.

    Units: `time_limit_us` is on the run's clock, which is `time_scale` times a real one's speed.
    """

    experiment: str
    runtime: str = "ray"
    seed: int | None = None  # None: the experiment file's, or 0
    overrides: tuple[str, ...] = ()
    runs: Path = Path("runs")
    ray_address: str = "local"
    time_limit_us: int | None = None
    time_scale: float = 1.0
    trace: bool = True
    analyze: bool = True
    report: bool = True
    master: str | None = None
    junit: Path | None = None
    json: bool = False


def run(options: RunOptions, console: Console) -> int:
    """Run one experiment and return the exit code.

    The JUnit file, if one is asked for, is written however the run ends.
    Raises: ExperimentError before anything is started; JunitNotWritable.
    """
    if options.junit is None:
        return _run(options, console)
    begin_junit(options.junit)
    try:
        return _run(options, console)
    except BaseException as error:  # Ctrl-C too: CI shows what it finds
        if not options.junit.exists():
            write_junit(options.junit, junit_of_failure(options.experiment, error))
        raise


def _run(options: RunOptions, console: Console) -> int:
    loaded = load_experiment(options.experiment, options.overrides)
    # With --json, standard output is one document and nothing else.
    warnings_console = Console(stderr=True) if options.json else console
    for warning in loaded.warnings:
        warnings_console.print(
            f"[yellow]unwise:[/] {escape(str(warning))}", highlight=False, soft_wrap=True
        )
    experiment = loaded.experiment
    seed = _seed(options, experiment)
    plan = plan_of(experiment)
    directory = create_run_directory(
        options.runs,
        experiment,
        plan,
        seed=seed,
        runtime=options.runtime,
        replay=replay_command(
            options.experiment,
            runtime=options.runtime,
            seed=seed,
            overrides=options.overrides,
            time_limit_us=options.time_limit_us,
            time_scale=options.time_scale,
            trace=options.trace,
            ray_address=options.ray_address,
        ),
        experiment_file=str(loaded.path),
        time_scale=options.time_scale,
    )
    with terminate_as_ctrl_c():
        results = _execute(options, experiment, directory, console)
        if options.junit is not None:
            junit = junit_of_run(directory.manifest, results, directory.path)
            write_junit(options.junit, junit)
        if options.json:
            console.file.write(_as_json(directory, results))
            return results.exit_code
        _conclude(options, directory, results, console)
    return results.exit_code


def _seed(options: RunOptions, experiment: Experiment) -> int:
    """Return the seed of the command line, else that of a replay file, else 0."""
    if options.seed is not None:
        return options.seed
    return 0 if experiment.replay is None else experiment.replay.seed


def _conclude(
    options: RunOptions, directory: RunDirectory, results: Results, console: Console
) -> None:
    """Analyse the run and print what it has to say; if the analysis fails, what the run itself has.

    Raises: what made the analysis or the report fail.
    """
    phases = None
    try:
        phases = _analyze(options, directory, results, console)
    finally:
        print_summary(console, directory.manifest, results, phases)
        print_path(console, "run directory", directory.path)
        console.print(Text(f"again: {directory.manifest.replay}"), soft_wrap=True)
    if options.report and phases is not None:
        _report(directory, console)


def _report(directory: RunDirectory, console: Console) -> None:
    try:
        path = write_run_report(console, open_run(directory.path))
    except KeyboardInterrupt:
        console.print(f"report interrupted: python -m coordlab report {directory.path}")
        return
    print_path(console, "report", path)


def _execute(
    options: RunOptions, experiment: Experiment, directory: RunDirectory, console: Console
) -> Results:
    suite = CheckSuite(context_of(experiment), experiment.checks)
    digest = TraceDigest()
    writer = ParquetTraceWriter(directory.events / EVENTS_FILE)
    observers: list[RowObserver] = [suite.observe, writer]
    if options.runtime == "virtual":
        observers.append(digest)
    runtime = _runtime(options, experiment, directory, observers)
    view = LiveView(console, experiment, options.runtime)
    try:
        with nullcontext() if options.json else view:
            results = ExperimentRun(
                experiment,
                plan_of(experiment),
                runtime,
                suite,
                seed=directory.manifest.seed,
                directory=directory,
                progress=None if options.json else view,
                live_checks=_live_checks(options, experiment, directory),
                time_limit_us=options.time_limit_us,
            ).execute()
    finally:
        writer.close()
    if options.runtime == "virtual":
        directory.manifest.digest = digest.hexdigest()
    directory.manifest.clock_error_us = runtime.clock_error_us
    directory.manifest.losses = runtime.losses
    directory.write_manifest()
    return results


def _live_checks(
    options: RunOptions, experiment: Experiment, directory: RunDirectory
) -> LiveChecks | None:
    """Return what checks a run on Ray while it goes on; in virtual time the one suite does."""
    if options.runtime == "virtual":
        return None
    lag_us = round(WATERMARK_LAG_US * options.time_scale)
    tail = TraceTail(directory.path / TRACE_FOLDER, lag_us=lag_us)
    return LiveChecks(CheckSuite(context_of(experiment), experiment.checks), tail.poll)


def _runtime(
    options: RunOptions,
    experiment: Experiment,
    directory: RunDirectory,
    observers: list[RowObserver],
) -> Runtime:
    spec = to_cluster_spec(experiment)
    run_id = directory.manifest.run
    if options.runtime == "virtual":
        from cluster.virtual.runtime import VirtualRuntime  # noqa: PLC0415 - only one is needed

        return VirtualRuntime(
            spec,
            seed=directory.manifest.seed,
            run_id=run_id,
            observers=observers,
            trace_messages=options.trace,
        )
    from cluster.ray.runtime import RayRuntime  # noqa: PLC0415 - importing Ray takes a second

    return RayRuntime(
        spec,
        seed=directory.manifest.seed,
        run_id=run_id,
        run_dir=directory.path,
        ray_address=options.ray_address,
        time_scale=options.time_scale,
        observers=observers,
        trace_messages=options.trace,
    )


def _analyze(
    options: RunOptions, directory: RunDirectory, results: Results, console: Console
) -> RunSummary | None:
    """Return the phases, or None where they are not wanted, or not to be had now."""
    if not options.analyze or options.json or results.outcome is RunOutcome.INTERNAL_ERROR:
        return None
    if results.outcome is RunOutcome.INTERRUPTED:
        console.print(f"to analyse it: python -m coordlab analyze {directory.path}", soft_wrap=True)
        return None
    notice = java_notice(directory.path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return None
    try:
        return analyze_runs(console, [directory.path], master=options.master)[0]
    except KeyboardInterrupt:
        console.print("analysis interrupted; the run itself is complete")
        return None


def _as_json(directory: RunDirectory, results: Results) -> str:
    document = {
        "run_directory": str(directory.path),
        "manifest": directory.manifest,
        "results": results,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
