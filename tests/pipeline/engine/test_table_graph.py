"""`compute` runs steps in threads, each after its inputs; if a step fails, all others end.

A step computes a DataFrame from the DataFrames of its inputs; an input is another step or a given
source. `carry_out` then caches, collects or writes the DataFrame, and returns the one that later
steps read.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.engine.step import Step, shared
from pipeline.engine.table_graph import compute
from tests.support.builders.trace_builder import parse_trace, write_run
from tests.support.worlds.analysed_runs import TRACES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60
"""A time limit that is reached only if the code is wrong."""
FOREVER_MS = 10**9
"""Length of a job that only its cancellation can end: 11 days."""


def _named(name: str, *inputs: str) -> Step:
    """Return a step that adds a column to its first input.

    The column has the step's name. The step needs its other inputs, too: the value of the column
    is made of the names of their last columns.
    """

    def transform(first: DataFrame, *others: DataFrame) -> DataFrame:
        needed = [other.columns[-1] for other in others]
        return first.select("*", F.lit("+".join(needed)).alias(name))

    return shared(name, transform, *inputs)


def _as_it_is(_: Step, frame: DataFrame) -> DataFrame:
    """Return the DataFrame unchanged: the `carry_out` of a test that needs none."""
    return frame


def test_steps_are_computed_after_their_inputs_in_any_order_of_the_list(
    spark: SparkSession,
) -> None:
    """The order of the list does not matter: `compute` sorts the steps by their inputs.

    `_named` gives a DataFrame the columns of its first input, and one with the step's name. So the
    columns show on which path each DataFrame was made.
    """
    steps = [
        _named("last", "left", "right"),
        _named("left", "first"),
        _named("right", "left", "first"),
        _named("first", "source"),
    ]

    frames = compute(
        steps, {"source": spark.range(1)}, _as_it_is, context=spark.sparkContext, threads=2
    )

    assert {name: frame.columns for name, frame in frames.items()} == {
        "source": ["id"],
        "first": ["id", "first"],
        "left": ["id", "first", "left"],
        "right": ["id", "first", "left", "right"],
        "last": ["id", "first", "left", "last"],
    }


def test_step_with_an_unknown_input_is_refused(spark: SparkSession) -> None:
    """Otherwise the step would wait for ever."""
    with pytest.raises(ValueError, match=r"second: no_such_step"):
        compute(
            [_named("second", "no_such_step")],
            {"source": spark.range(1)},
            _as_it_is,
            context=spark.sparkContext,
            threads=2,
        )


def test_independent_steps_are_computed_at_the_same_time(spark: SparkSession) -> None:
    """The barrier opens only if both steps are in `carry_out` together."""
    both_started = threading.Barrier(2, timeout=PATIENCE_S)

    def carry_out(_: Step, frame: DataFrame) -> DataFrame:
        both_started.wait()
        return frame

    frames = compute(
        [_named("one", "source"), _named("other", "source")],
        {"source": spark.range(1)},
        carry_out,
        context=spark.sparkContext,
        threads=2,
    )

    assert set(frames) == {"source", "one", "other"}


def test_failed_step_raises_its_own_error_and_ends_the_jobs_of_others(spark: SparkSession) -> None:
    """The cancelled job also raises an error, which must not hide that of the failed step.

    The jobs must end here: the session can belong to the caller, and then it lives on.
    """
    working = threading.Event()
    reached: list[str] = []

    def endless(source: DataFrame) -> DataFrame:
        wait_ms = F.lit(FOREVER_MS).cast("long")
        sleep = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), wait_ms)
        return source.select(sleep.alias("slept"), "id")

    def failing(_: DataFrame) -> DataFrame:
        if not working.wait(PATIENCE_S):
            raise TimeoutError
        raise LookupError("no such column")

    def carry_out(step: Step, frame: DataFrame) -> DataFrame:
        reached.append(step.name)
        # From here on `failing` may fail: the job of `endless` is about to run.
        working.set()
        frame.collect()
        return frame

    steps: Sequence[Step] = [
        shared("endless", endless, "source"),
        shared("failing", failing, "source"),
        _named("after", "failing"),
    ]
    with pytest.raises(LookupError, match="no such column"):
        compute(
            steps,
            {"source": spark.range(1)},
            carry_out,
            context=spark.sparkContext,
            threads=2,
        )

    # `failing` raised before its own `carry_out`, so `after`, which needs its result, never began.
    assert reached == ["endless"]
    # The job is cancelled before `compute` returns; its tasks end a moment later.
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + PATIENCE_S
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not tracker.getActiveJobsIds()


INTERRUPTED = """
import os, sys
from pathlib import Path
from pyspark import SparkContext
from pipeline.run import analyze

def print_jvm_pid(progress):
    if progress.part != "starting Spark":
        print(SparkContext._active_spark_context._gateway.proc.pid, flush=True)

try:
    analyze([Path(sys.argv[1])], progress=print_jvm_pid, whole_run_rows=int(sys.argv[2]))
except KeyboardInterrupt:
    sys.exit(7)
"""
"""A program that analyses the run in its first argument. From Spark's start on it prints the JVM's
process id at each step. It exits with code 7 if it is interrupted."""


@pytest.mark.slow
@pytest.mark.parametrize("whole_run_rows", [0, 1_000])
def test_interrupted_analysis_leaves_no_jvm_and_no_files(
    spark: SparkSession, tmp_path: Path, whole_run_rows: int
) -> None:
    """An analysis that Ctrl-C interrupts removes its own files and ends its JVM.

    Ctrl-C reaches the whole process group (Python, JVM, workers), so the test signals the group.
    One task reads a run of at most `whole_run_rows` rows as a whole; with 0 no run is read so. With
    1,000 the task can have written tables before the signal. Every reader ignores tables without a
    summary.
    """
    assert spark.version  # a Java exists here, so a failure below is a fault of the project
    run = write_run(tmp_path / "crash" / "1", parse_trace((TRACES / "crash.txt").read_text()))
    temp = tmp_path / "temp"
    temp.mkdir()
    before = sorted(path.name for path in run.iterdir())

    # A new session is a process group of its own, so that the signal does not reach this test.
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(run), str(whole_run_rows)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        stdout = process.stdout
        assert stdout is not None
        jvm = int(stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, errors) == (7, "")
    with pytest.raises(ProcessLookupError):
        os.kill(jvm, 0)  # signal 0 only asks whether the process exists
    after = sorted(path.name for path in run.iterdir())
    assert after == before or (whole_run_rows and after == sorted([*before, "tables"]))
    assert list(temp.iterdir()) == []
