"""Spreads runs over Spark's workers; each worker analyses one run at a time.

A job is one computation of Spark; its tasks run in Spark's workers. The driver (the Python process
of the analysis) sends the names of a run's files to a worker. The worker reads the files, writes
tables and summary into the run's directory, and sends the summary back. So no rows cross the
network.
"""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext

from pipeline.engine.jobs import LOOK_AGAIN_S, stop_jobs
from pipeline.engine.run_files import RunFiles
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import TABLES_VERSION
from pipeline.whole_runs.write import analyze_whole

LARGE_ROWS = 500_000
"""A run with more rows is large. Its task takes up to 2 GB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """An OSError of a task, as a value.

    Spark would pass an exception to the driver as text only. `number` is the error's errno; None if
    the error has no errno.
    """

    number: int | None
    text: str
    path: str


def analyze_by_run(
    context: SparkContext, runs: Sequence[RunFiles], report_done: Callable[[int], None]
) -> tuple[RunSummary | None, ...]:
    """Write tables and summary of each run (`write.analyze_whole`), several runs at a time.

    Returns one summary per run, in the order of `runs`; None for a run that a task cannot read.
    `report_done` is called repeatedly with the number of runs that are done.
    Raises: OSError of a task; Py4JError if a task fails otherwise. Before it raises one of these
    errors or a KeyboardInterrupt, the function cancels all jobs.
    """
    tag = f"coordlab-{uuid.uuid4()}"

    # At most half of the processors work on large runs at the same time, because each of these runs
    # takes much memory.
    small = [run for run in runs if run.rows <= LARGE_ROWS]
    large = [run for run in runs if run.rows > LARGE_ROWS]

    def run_jobs() -> dict[str, RunSummary | _Refused | None]:
        """Run one job for the small runs and one for the large ones, and collect their results."""
        # `_count_done_tasks` finds the jobs by their group, `stop_jobs` by their tag.
        context.setJobGroup(tag, "whole runs")
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        # Half of the processors, but 1 if there is only one processor.
        most_large = max(1, context.defaultParallelism // 2)
        results: dict[str, RunSummary | _Refused | None] = {}
        # A slice of the runs is one task. Each small run has a task of its own; the large runs
        # share `most_large` tasks, so that no more of them run at the same time.
        for runs_of_job, slices in ((small, len(small)), (large, min(most_large, len(large)))):
            if runs_of_job:
                results |= dict(context.parallelize(runs_of_job, slices).map(_task).collect())
        return results

    # Calls into the JVM (Spark's Java process) run in two other threads: one waits for the jobs,
    # the other asks how many tasks are done. In the main thread, a Ctrl-C could interrupt a call;
    # this would close py4j's connection and print a traceback.
    with ThreadPoolExecutor(2, thread_name_prefix="coordlab-runs") as pool:
        future = pool.submit(run_jobs)
        try:
            # Until the jobs have ended, report every LOOK_AGAIN_S seconds.
            while not wait([future], timeout=LOOK_AGAIN_S).done:
                report_done(pool.submit(_count_done_tasks, context, tag).result())
            results = future.result()
        except BaseException:  # a KeyboardInterrupt must end the jobs, too
            stop_jobs([future], context, tag)
            raise

    summaries = []
    for run in runs:
        result = results[run.run]
        if isinstance(result, _Refused):
            raise OSError(result.number, result.text, result.path)
        summaries.append(result)
    return tuple(summaries)


def workers_have_package(context: SparkContext) -> bool:
    """Return whether Spark's workers can import this package, in the version of the driver.

    Workers on this machine run the driver's own Python. Those of a cluster can lack the package.
    """
    if context.master.startswith("local"):
        return True
    count = context.defaultParallelism
    try:
        # As many tasks as processors, so that most likely each worker gets one.
        versions = context.parallelize(range(count), count).map(_version).collect()
    except Py4JError:  # a worker could not import this module
        return False
    # A worker with another version would write tables that the driver takes for outdated.
    return set(versions) == {TABLES_VERSION}


def _version(_: int) -> int:
    """Return the TABLES_VERSION of the package that the worker imports."""
    return TABLES_VERSION


def _task(files: RunFiles) -> tuple[str, RunSummary | _Refused | None]:
    """Analyse one run in a worker; return the run's name, and its summary or the OSError."""
    try:
        return files.run, analyze_whole(files)
    except OSError as error:
        path = str(error.filename or files.directory)
        refused = _Refused(number=error.errno, text=error.strerror or str(error), path=path)
        return files.run, refused


def _count_done_tasks(context: SparkContext, group: str) -> int:
    """Return how many tasks of the job group have ended so far."""
    # Spark's tracker forgets old jobs and stages, and returns None for them.
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage)
