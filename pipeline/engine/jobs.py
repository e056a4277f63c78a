"""Cancels the Spark jobs for which threads of this process (Spark's driver) wait.

Each job of an analysis carries the tag of the analysis; Spark cancels jobs by tag.
"""

from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import TypeVar

from pyspark import SparkContext

T = TypeVar("T")

LOOK_AGAIN_S = 0.1
"""Seconds between two checks whether threads have ended."""


def stop_jobs(running: Collection[Future[T]], context: SparkContext, tag: str) -> None:
    """Cancel the jobs with `tag` again and again, until all tasks in `running` have ended.

    Each task waits for jobs in a thread. One cancellation is not enough, because a thread that
    still plans its next job can start the job afterwards.
    """
    for future in running:
        future.cancel()  # has an effect only on a task that no thread has begun
    left = set(running)
    while left:
        context.cancelJobsWithTag(tag)
        _, left = wait(left, timeout=LOOK_AGAIN_S)
