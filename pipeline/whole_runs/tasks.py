"""Spreads runs over Spark's workers, one run at a time in each.

Data flow: the driver sends the names of a run's files; a worker reads them, writes tables and
summary into the run's directory, and sends the summary back. Nothing else crosses the network.
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
"""Larger runs take up to 2 GB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """The error of the operating system that a task met: an exception would come as a text."""

    number: int | None
    text: str
    path: str


def analyze_by_run(
    context: SparkContext, runs: Sequence[RunFiles], told: Callable[[int], None]
) -> tuple[RunSummary | None, ...]:
    """Write tables and summary of each run (`write.analyze_whole`), as many at once as Spark can.

    `told` learns how many are done. Shape: one summary a run, in their order; None for a run that
    is left to the transforms.
    Raises: OSError as a task met it; Py4JError for what else ends a task. Jobs are cancelled by
    then, after KeyboardInterrupt, too.
    """
    tag = f"coordlab-{uuid.uuid4()}"

    # Large ones at half of the processors: what two of them hold is all that a laptop can spare.
    small = [run for run in runs if run.rows <= LARGE_ROWS]
    large = [run for run in runs if run.rows > LARGE_ROWS]

    def run_jobs() -> dict[str, RunSummary | _Refused | None]:
        context.setJobGroup(tag, "whole runs")
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        at_once = max(1, context.defaultParallelism // 2)
        found: dict[str, RunSummary | _Refused | None] = {}
        for together, slices in ((small, len(small)), (large, min(at_once, len(large)))):
            if together:
                found |= dict(context.parallelize(together, slices).map(_task).collect())
        return found

    # Two threads speak to the JVM, this one does not: a Ctrl-C in the middle of a call would close
    # the connection, and be told with a traceback.
    with ThreadPoolExecutor(2, thread_name_prefix="coordlab-runs") as pool:
        future = pool.submit(run_jobs)
        try:
            while not wait([future], timeout=LOOK_AGAIN_S).done:
                told(pool.submit(_tasks_done, context, tag).result())
            found = future.result()
        except BaseException:
            stop_jobs([future], context, tag)
            raise
    summaries = []
    for run in runs:
        each = found[run.run]
        if isinstance(each, _Refused):
            raise OSError(each.number, each.text, each.path)
        summaries.append(each)
    return tuple(summaries)


def workers_have_lab(context: SparkContext) -> bool:
    """Return whether Spark's workers can import this package, in the version of the driver.

    A cluster's need not. Workers of this machine run the driver's own Python.
    """
    if context.master.startswith("local"):
        return True
    count = context.defaultParallelism
    try:
        found = context.parallelize(range(count), count).map(_version).collect()
    except Py4JError:
        return False
    return set(found) == {TABLES_VERSION}


def _version(_: int) -> int:
    return TABLES_VERSION


def _task(files: RunFiles) -> tuple[str, RunSummary | _Refused | None]:
    try:
        return files.run, analyze_whole(files)
    except OSError as error:
        path = str(error.filename or files.directory)
        refused = _Refused(number=error.errno, text=error.strerror or str(error), path=path)
        return files.run, refused


def _tasks_done(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage)
