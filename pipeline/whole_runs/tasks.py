"""Spreads runs over Spark's workers; each worker analyses one run at a time.

The driver (the Python process of the analysis) sends the names of a run's files to a worker. The
worker reads the files, writes the tables and the summary into the run's directory, and sends the
summary back. So the rows themselves are not sent over the network.
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
"""A run with more rows than this counts as large: its analysis takes up to 2 GB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """An OSError of a task, such as "disk full", as a value.

    Spark sends an exception to the driver only as text. So the task does not raise the OSError, but
    returns this value, and the driver raises the OSError again. `number` is its errno.
    """

    number: int | None
    text: str
    path: str


def analyze_by_run(
    context: SparkContext, runs: Sequence[RunFiles], report_done: Callable[[int], None]
) -> tuple[RunSummary | None, ...]:
    """Write the tables and the summary of each run (`write.analyze_whole`), several at a time.

    Returns the summaries in the order of `runs`. The summary of a run that plain Python cannot read
    is None. `report_done` is called again and again with the number of runs that are done.

    If a run fails or a KeyboardInterrupt comes, all jobs are cancelled before the exception is
    raised.
    Raises: OSError if a file cannot be read or written; Py4JError if a task fails for another
    reason.
    """
    tag = f"coordlab-{uuid.uuid4()}"

    # Large runs take much memory, so at most half of the processors work on them at the same time.
    small = [run for run in runs if run.rows <= LARGE_ROWS]
    large = [run for run in runs if run.rows > LARGE_ROWS]

    def run_jobs() -> dict[str, RunSummary | _Refused | None]:
        """Analyse the small runs, then the large ones; return the result of each run."""
        # `_count_done_tasks` finds the jobs by their group, and `stop_jobs` by their tag.
        context.setJobGroup(tag, "whole runs")
        context.addJobTag(tag)
        # If a job is cancelled, Spark interrupts the job's running tasks.
        context.setInterruptOnCancel(True)
        half_of_processors = max(1, context.defaultParallelism // 2)
        results: dict[str, RunSummary | _Refused | None] = {}
        # Each small run is a task of its own. For the large runs, there are only half as many tasks
        # as processors.
        if small:
            results |= dict(context.parallelize(small, len(small)).map(_task).collect())
        if large:
            tasks = min(half_of_processors, len(large))
            results |= dict(context.parallelize(large, tasks).map(_task).collect())
        return results

    # All calls into Spark's JVM are made in two other threads: one thread waits for the jobs, and
    # the other thread asks how many tasks are done. A Ctrl-C comes in the main thread. If it
    # interrupted a call into the JVM, the connection to the JVM would be closed and a traceback
    # would be printed.
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
    """Return whether Spark's workers have this package, in the same version as the driver.

    Workers on this machine run the driver's Python, so they have the package. Workers of a cluster
    may not have it.
    """
    if context.master.startswith("local"):
        return True
    processors = context.defaultParallelism
    try:
        # There are as many tasks as processors, so each worker most likely gets one of them.
        versions = context.parallelize(range(processors), processors).map(_version).collect()
    except Py4JError:  # a worker could not import this module
        return False
    # A worker with another version would write tables that count as outdated for the driver.
    return set(versions) == {TABLES_VERSION}


def _version(_: int) -> int:
    """Return the TABLES_VERSION of the package that the worker imports."""
    return TABLES_VERSION


def _task(files: RunFiles) -> tuple[str, RunSummary | _Refused | None]:
    """Analyse one run in a worker; return its name, and its summary or the OSError."""
    try:
        return files.run, analyze_whole(files)
    except OSError as error:
        path = str(error.filename or files.directory)
        refused = _Refused(number=error.errno, text=error.strerror or str(error), path=path)
        return files.run, refused


def _count_done_tasks(context: SparkContext, group: str) -> int:
    """Return how many tasks of a group of jobs have ended so far."""
    # The tracker forgets old jobs and stages after a while, and returns None for them.
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage)
