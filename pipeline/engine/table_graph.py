"""Computes steps in the order of their inputs, several at the same time.

A step computes one DataFrame from other DataFrames, its inputs. An input is the result of another
step, or a source, which exists before the first step. A step starts as soon as its inputs are
there. Several threads run steps, because Spark can plan one step while it computes others.

This module knows neither what the steps compute, nor where their results are stored.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pyspark import SparkContext
from pyspark.sql import DataFrame

from pipeline.engine.jobs import stop_jobs
from pipeline.engine.step import Step

CarryOut = Callable[[Step, DataFrame], DataFrame]
"""A function that gets a step and its DataFrame, and keeps the rows as the step's `result` says. It
returns the DataFrame that later steps read.
"""


def compute(
    steps: Sequence[Step],
    sources: Mapping[str, DataFrame],
    carry_out: CarryOut,
    *,
    context: SparkContext,
    threads: int,
) -> dict[str, DataFrame]:
    """Compute all steps; return the DataFrames of the sources and steps by name.

    `carry_out` is called in up to `threads` threads at the same time. If several steps could start,
    the step that is listed first starts first.

    If a step raises an exception, or a KeyboardInterrupt comes, the Spark jobs of the other steps
    are cancelled, and all threads end before the exception is raised.
    Raises: ValueError if an input is neither a source nor a step, or if steps wait for one another;
    the first exception of a step; KeyboardInterrupt.
    """
    _check_inputs(steps, sources)
    tag = f"coordlab-{uuid.uuid4()}"

    def run(step: Step, inputs: Sequence[DataFrame]) -> DataFrame:
        """Compute one step in a thread of the pool; return the DataFrame for later steps."""
        # All Spark jobs of this thread get the tag, by which `stop_jobs` can cancel them.
        context.addJobTag(tag)
        # If a job is cancelled, Spark interrupts the job's running tasks.
        context.setInterruptOnCancel(True)
        return carry_out(step, step.transform(*inputs))

    done = dict(sources)
    waiting = list(steps)
    running: dict[Future[DataFrame], Step] = {}
    with ThreadPoolExecutor(threads, thread_name_prefix="coordlab-table") as pool:
        try:
            while waiting or running:
                # A step is ready if all its inputs are done.
                ready = [step for step in waiting if done.keys() >= set(step.inputs)]
                for step in ready:
                    inputs = [done[name] for name in step.inputs]
                    running[pool.submit(run, step, inputs)] = step
                waiting = [step for step in waiting if step not in ready]

                # At least one step is running here, because `_check_inputs` has refused steps that
                # could never start.
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    done[running.pop(future).name] = future.result()
        except BaseException:
            # BaseException includes KeyboardInterrupt. If the jobs went on, the exception would
            # come minutes later: at the end of the block the pool waits for its threads, and the
            # threads wait for their jobs.
            stop_jobs(running, context, tag)
            raise
    return done


def _check_inputs(steps: Sequence[Step], sources: Mapping[str, DataFrame]) -> None:
    """Raise ValueError if a step can never start, because one of its inputs is never computed."""
    computable = set(sources)
    waiting = list(steps)
    # Find the steps that can start, then the steps that can start after them, and so on.
    while ready := [step for step in waiting if computable.issuperset(step.inputs)]:
        computable.update(step.name for step in ready)
        waiting = [step for step in waiting if step not in ready]
    if waiting:
        # Each step that cannot start, with its inputs that are never computed.
        missing_inputs = [
            f"{step.name}: {', '.join(name for name in step.inputs if name not in computable)}"
            for step in waiting
        ]
        raise ValueError(f"no source or step provides the inputs of: {'; '.join(missing_inputs)}")
