"""Cancels the Spark jobs of an analysis, for example after a Ctrl-C.

Threads of this process start the jobs and wait for them. All jobs of an analysis have the same tag,
by which Spark finds and cancels them.
"""

from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import TypeVar

from pyspark import SparkContext

T = TypeVar("T")

LOOK_AGAIN_S = 0.1
"""Seconds between two looks whether threads have ended."""


def stop_jobs(running: Collection[Future[T]], context: SparkContext, tag: str) -> None:
    """Cancel the jobs with `tag` until all tasks in `running` have ended, which wait for them.

    One cancellation is not enough, because a task that is still planning its next job can start
    this job afterwards.
    """
    for future in running:
        future.cancel()  # a task that no thread has begun will not begin any more
    unfinished = set(running)
    while unfinished:
        context.cancelJobsWithTag(tag)
        _, unfinished = wait(unfinished, timeout=LOOK_AGAIN_S)
