"""`compute` runs the steps of an analysis in threads, and ends all of them if one fails.

A step has a function that makes a DataFrame from other DataFrames, its inputs. An input is the
DataFrame of another step, or a given source, such as the events of a run. `compute` begins a step
when all of its inputs are there. It passes the new DataFrame to `carry_out`, a function of the
caller, which may cache, collect or write the DataFrame. Later steps get what `carry_out` returns.
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
"""A time limit that is reached only if the code under test is wrong."""
FOREVER_MS = 10**9
"""Length of the sleep of a job that shall end only because it is cancelled: 11 days."""


def _adds_column(name: str, *inputs: str) -> Step:
    """Return the step `name`, which adds a column `name` to its first input.

    The value of the new column is made from the other inputs: it has the name of the last column of
    each of them, such as "left+right".
    """

    def transform(first: DataFrame, *others: DataFrame) -> DataFrame:
        needed = [other.columns[-1] for other in others]
        return first.select("*", F.lit("+".join(needed)).alias(name))

    # `shared` makes a step whose result other steps read.
    return shared(name, transform, *inputs)


def _as_it_is(_: Step, frame: DataFrame) -> DataFrame:
    """Return the DataFrame unchanged. This is the `carry_out` of most tests."""
    return frame


def test_steps_are_computed_after_their_inputs_in_any_order_of_the_list(
    spark: SparkSession,
) -> None:
    """The order of the list does not matter: `compute` sorts the steps by their inputs.

    Each step of this test adds a column with its own name to its first input. So the columns of a
    DataFrame show from which other DataFrames it was made.
    """
    steps = [
        _adds_column("last", "left", "right"),
        _adds_column("left", "first"),
        _adds_column("right", "left", "first"),
        _adds_column("first", "source"),
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
    """`compute` refuses the step, which would wait for ever for its input."""
    with pytest.raises(ValueError, match=r"second: no_such_step"):
        compute(
            [_adds_column("second", "no_such_step")],
            {"source": spark.range(1)},
            _as_it_is,
            context=spark.sparkContext,
            threads=2,
        )


def test_independent_steps_are_computed_at_the_same_time(spark: SparkSession) -> None:
    """In `carry_out` each step waits until the other step is in `carry_out`, too.

    If the steps were computed one after the other, the first wait would time out.
    """
    both_started = threading.Barrier(2, timeout=PATIENCE_S)

    def carry_out(_: Step, frame: DataFrame) -> DataFrame:
        both_started.wait()
        return frame

    frames = compute(
        [_adds_column("one", "source"), _adds_column("other", "source")],
        {"source": spark.range(1)},
        carry_out,
        context=spark.sparkContext,
        threads=2,
    )

    assert set(frames) == {"source", "one", "other"}


def test_failed_step_raises_its_own_error_and_ends_the_jobs_of_others(spark: SparkSession) -> None:
    """`compute` cancels the jobs of the other steps, and raises the error of the failed step.

    A step whose job is cancelled raises an error, too. This error must not hide the first error.

    Without the cancellation, the job could go on after `compute` has returned: the Spark session
    may belong to the caller, and then stays open.
    """
    endless_job_begins = threading.Event()
    carried_out: list[str] = []

    def endless(source: DataFrame) -> DataFrame:
        wait_ms = F.lit(FOREVER_MS).cast("long")
        sleep = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), wait_ms)
        return source.select(sleep.alias("slept"), "id")

    def failing(_: DataFrame) -> DataFrame:
        if not endless_job_begins.wait(PATIENCE_S):
            raise TimeoutError
        raise LookupError("no such column")

    def carry_out(step: Step, frame: DataFrame) -> DataFrame:
        carried_out.append(step.name)
        # Now `failing` may fail, because `endless` is about to run its job.
        endless_job_begins.set()
        frame.collect()
        return frame

    steps: Sequence[Step] = [
        shared("endless", endless, "source"),
        shared("failing", failing, "source"),
        _adds_column("after", "failing"),
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
    assert carried_out == ["endless"]
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

    A run of at most `whole_run_rows` rows is analysed by a single task, in plain Python. A larger
    run is analysed by Spark's transforms. So there are two cases:

    - 1,000: a single task analyses this run, and may have written the tables when the signal comes.
      Such tables may stay, because every reader ignores tables without a summary.
    - 0: the transforms analyse this run, and leave nothing.
    """
    assert spark.version  # the fixture found a Java, so that is not why the program below fails
    run = write_run(tmp_path / "crash" / "1", parse_trace((TRACES / "crash.txt").read_text()))
    temp = tmp_path / "temp"
    temp.mkdir()
    files_before = sorted(path.name for path in run.iterdir())

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
    files_after = sorted(path.name for path in run.iterdir())
    may_have_tables = whole_run_rows > 0
    assert files_after == files_before or (
        may_have_tables and files_after == sorted([*files_before, "tables"])
    )
    assert list(temp.iterdir()) == []
