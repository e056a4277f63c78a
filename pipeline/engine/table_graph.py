"""Computes steps in the order of their inputs, several at a time: one is planned while others run.

A step computes one DataFrame from others, its inputs. The sources are the DataFrames that exist
before the first step.

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
"""Stores a step's DataFrame as the step's `result` says (caches, collects or writes it); returns
the DataFrame for later steps to read.
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

    Every input is the name of a source or of a step. `carry_out` runs in up to `threads` threads at
    the same time. If the inputs of several steps are ready, the one listed first starts first.
    Raises: ValueError if an input is missing, or if steps form a circle; the first exception of a
    step; KeyboardInterrupt. Before a step's exception or KeyboardInterrupt is raised, this function
    cancels the Spark jobs of the other steps and waits for the end of all threads.
    """
    _check_inputs(steps, sources)
    tag = f"coordlab-{uuid.uuid4()}"

    def run(step: Step, inputs: Sequence[DataFrame]) -> DataFrame:
        # The tag of a job lets `stop_jobs` cancel the jobs of this computation only.
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

                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    done[running.pop(future).name] = future.result()
        except BaseException:
            stop_jobs(running, context, tag)
            raise
    return done


def _check_inputs(steps: Sequence[Step], sources: Mapping[str, DataFrame]) -> None:
    """Raise ValueError if a step can never start, because one of its inputs is never computed."""
    known = set(sources)
    left = list(steps)
    # Each pass adds the results of the steps that can start to `known`, until no more can start.
    while ready := [step for step in left if known.issuperset(step.inputs)]:
        known.update(step.name for step in ready)
        left = [step for step in left if step not in ready]
    # The remaining steps lack an input, or wait for each other.
    if left:
        lacks = (
            f"{step.name}: {', '.join(name for name in step.inputs if name not in known)}"
            for step in left
        )
        raise ValueError(f"no source or step provides the inputs of: {'; '.join(lacks)}")
