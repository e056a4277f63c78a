"""Cancellation of the Spark jobs that threads of the driver wait for.

The driver is the Python process of the analysis. A tag marks the jobs of one analysis.
"""

from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import TypeVar

from pyspark import SparkContext

T = TypeVar("T")

LOOK_AGAIN_S = 0.1
"""Seconds between two checks whether the threads have ended."""


def stop_jobs(running: Collection[Future[T]], context: SparkContext, tag: str) -> None:
    """Cancel the jobs with `tag` until the threads that wait for them (`running`) have ended.

    One cancellation is not enough: a thread that is still planning can start a job after it.
    """
    for future in running:
        future.cancel()
    left = set(running)
    while left:
        context.cancelJobsWithTag(tag)
        _, left = wait(left, timeout=LOOK_AGAIN_S)
