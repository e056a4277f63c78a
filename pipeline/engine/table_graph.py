"""Steps in the order that their inputs allow, several at once: one is planned while others run.

Knows nothing of what the steps compute, nor where their results go.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pyspark import SparkContext
from pyspark.sql import DataFrame

from pipeline.engine.jobs import stop_jobs
from pipeline.engine.step import Step

CarryOut = Callable[[Step, DataFrame], DataFrame]
"""Does with a step's DataFrame what has to be done, and returns it as later steps shall read it."""


def compute(
    steps: Sequence[Step],
    sources: Mapping[str, DataFrame],
    carry_out: CarryOut,
    *,
    context: SparkContext,
    threads: int,
) -> dict[str, DataFrame]:
    """Compute each step from `sources` and other steps; returns all of them by name.

    Shape: every input is the name of a source or of a step. `carry_out` is called in up to
    `threads` threads at once, for steps that are listed first if several could be.
    Raises: ValueError if an input is missing, or steps need each other. The first exception of a
    step; Spark jobs of the others are cancelled, and nothing runs any more when it is raised. The
    same holds for KeyboardInterrupt.
    """
    _check(steps, sources)
    tag = f"coordlab-{uuid.uuid4()}"

    def run(step: Step, inputs: Sequence[DataFrame]) -> DataFrame:
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


def _check(steps: Sequence[Step], sources: Mapping[str, DataFrame]) -> None:
    """Check that every step's turn comes."""
    known = set(sources)
    left = list(steps)
    while ready := [step for step in left if known.issuperset(step.inputs)]:
        known.update(step.name for step in ready)
        left = [step for step in left if step not in ready]
    if left:
        lacks = (
            f"{step.name}: {', '.join(name for name in step.inputs if name not in known)}"
            for step in left
        )
        raise ValueError(f"nobody makes what these need: {'; '.join(lacks)}")
