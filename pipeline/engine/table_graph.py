"""Computes steps in the order of their inputs, several at the same time.

A step computes one DataFrame from others, its inputs. The sources are the DataFrames that exist
before the first step. Several threads are worthwhile because Spark plans one step while it runs the
jobs of others.

This module does not depend on what the steps compute, nor on where their results are stored.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pyspark import SparkContext
from pyspark.sql import DataFrame

from pipeline.engine.jobs import stop_jobs
from pipeline.engine.step import Step

CarryOut = Callable[[Step, DataFrame], DataFrame]
"""A function that stores a step's DataFrame as the step's `result` says (caches, collects or writes
its rows), and returns the DataFrame that later steps read.
"""


def compute(
    steps: Sequence[Step],
    sources: Mapping[str, DataFrame],
    carry_out: CarryOut,
    *,
    context: SparkContext,
    threads: int,
) -> dict[str, DataFrame]:
    """Compute each step from `sources` and other steps; return all DataFrames by name.

    `carry_out` runs in up to `threads` threads at the same time. If the inputs of several steps are
    ready, the step listed first starts first. Raises: ValueError if an input is neither a source
    nor a step, or if steps wait for one another; the first exception of a step; KeyboardInterrupt.
    Before it raises an exception of a step or a KeyboardInterrupt, this function cancels the Spark
    jobs of the other steps and waits for the end of all threads.
    """
    _check_inputs(steps, sources)
    tag = f"coordlab-{uuid.uuid4()}"

    def run(step: Step, inputs: Sequence[DataFrame]) -> DataFrame:
        # All Spark jobs of this thread get the tag, by which `stop_jobs` finds and cancels them.
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        return carry_out(step, step.transform(*inputs))

    done = dict(sources)
    waiting = list(steps)
    running: dict[Future[DataFrame], Step] = {}
    with ThreadPoolExecutor(threads, thread_name_prefix="coordlab-table") as pool:
        try:
            while waiting or running:
                ready = [step for step in waiting if done.keys() >= set(step.inputs)]
                for step in ready:
                    inputs = [done[name] for name in step.inputs]
                    running[pool.submit(run, step, inputs)] = step
                waiting = [step for step in waiting if step not in ready]

                # At least one step is running here, because `_check_inputs` has refused steps that
                # could never start. So `wait` returns.
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    done[running.pop(future).name] = future.result()
        except BaseException:
            # A KeyboardInterrupt must stop the jobs, too. Otherwise the exception would be delayed
            # by minutes: the pool waits for its threads, and these wait for their jobs.
            stop_jobs(running, context, tag)
            raise
    return done


def _check_inputs(steps: Sequence[Step], sources: Mapping[str, DataFrame]) -> None:
    """Raise ValueError if a step can never start, because one of its inputs is never computed."""
    computable = set(sources)
    left = list(steps)
    # Each pass adds the steps whose inputs are computable, until there are no more of them.
    while ready := [step for step in left if computable.issuperset(step.inputs)]:
        computable.update(step.name for step in ready)
        left = [step for step in left if step not in ready]
    # The remaining steps lack an input, or wait for each other.
    if left:
        lacks = (
            f"{step.name}: {', '.join(name for name in step.inputs if name not in computable)}"
            for step in left
        )
        raise ValueError(f"no source or step provides the inputs of: {'; '.join(lacks)}")
