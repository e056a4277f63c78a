"""Cancels the Spark jobs of an analysis, for example after a Ctrl-C.

Threads of this process start the jobs and wait for them. All jobs of an analysis have the same tag.
By this tag, Spark finds the jobs and cancels them.
"""

from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import TypeVar

from pyspark import SparkContext

T = TypeVar("T")

LOOK_AGAIN_S = 0.1
"""Seconds between two looks at whether the tasks have ended."""


def stop_jobs(running: Collection[Future[T]], context: SparkContext, tag: str) -> None:
    """Cancel the jobs with `tag` until all tasks in `running` have ended.

    These tasks of a thread pool start the jobs and wait for them. One cancellation is not enough: a
    task may just be planning its next job, and start this job after the cancellation.
    """
    for future in running:
        future.cancel()  # prevents a task that no thread has begun yet
    unfinished = set(running)
    while unfinished:
        context.cancelJobsWithTag(tag)
        _, unfinished = wait(unfinished, timeout=LOOK_AGAIN_S)
