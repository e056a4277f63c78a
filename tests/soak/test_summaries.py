"""Both readers of a trace must compute the same summary and the same tables of a run.

One reader is Spark with its transforms. The other reader is plain Python, which reads a whole run
into memory. The two readers have only the last step in common, so each of them checks the other.
The tests compare the summary of each run (its figures), field by field, and every row of every
table.

There are two kinds of runs: runs in virtual time (a simulated clock), whose faults were drawn at
random, and runs of experiments on Ray.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.experiment.loader import load_experiment
from chaos.exploration.draw.draw import draw
from chaos.exploration.space import load_space
from pipeline.all_tables import TABLE_NAMES
from pipeline.engine.run_files import find_run_files
from pipeline.in_memory.summary import summarize_rows
from pipeline.in_memory.trace import TableRow
from pipeline.run import analyze
from pipeline.summary.figures import RunSummary
from pipeline.whole_runs.write import analyze_whole
from protocol.trace import TraceRow
from tests.support.builders.trace_builder import read_table, write_run
from tests.support.soak import say
from tests.support.worlds.acceptance import play_ray, play_virtual

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(3_500)]

DRAWN = 50
AT_ONCE = 10
"""The number of drawn runs that are analysed together. More would need more memory."""
ON_RAY = (
    "coordinator_crash",
    "graceful_move",
    "rolling_restart",
    "split_network",
    "split_brain_ownership",
)
CLOCK_ERROR_US = 250
"""The assumed difference between the clocks of nodes on Ray.

With such an error, the summary has bounds for its times. These bounds are compared, too.
"""


def test_summaries_of_drawn_virtual_runs_equal_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """The space named "standard" has faults of all kinds, so the drawn runs have many cases."""
    space = load_space("standard")
    in_memory: list[RunSummary] = []
    for begin in range(0, DRAWN, AT_ONCE):
        traces = {
            f"drawn/{seed}": play_virtual(draw(space, seed), seed=seed).rows
            for seed in range(begin, begin + AT_ONCE)
        }
        in_memory += compared(spark, tmp_path, traces, clock_error_us=0)
    say_summaries("drawn runs in virtual time", in_memory)
    # The summaries must contain something to compare: faults in more than half of the runs, and at
    # least half as many rebalances as runs.
    runs_with_faults = sum(bool(summary.faults) for summary in in_memory)
    rebalances = sum(fault.rebalance_count for summary in in_memory for fault in summary.faults)
    assert runs_with_faults > DRAWN // 2
    assert rebalances > DRAWN // 2


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_summaries_of_runs_on_ray_equal_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """Real processes add cases: rows with equal times, late answers, killed processes."""
    traces: dict[str, Sequence[TraceRow]] = {}
    for name in ON_RAY:
        rows: list[TraceRow] = []
        run_dir = tmp_path / "played" / name
        run_dir.mkdir(parents=True)
        play_ray(load_experiment(name, ()).experiment, run_dir, seed=1, observers=[rows.append])
        traces[f"{name}/1"] = rows
    in_memory = compared(spark, tmp_path, traces, clock_error_us=CLOCK_ERROR_US)
    say_summaries("runs on Ray", in_memory)
    assert all(summary.faults for summary in in_memory)


def compared(
    spark: SparkSession,
    base: Path,
    traces: Mapping[str, Sequence[TraceRow]],
    *,
    clock_error_us: int,
) -> list[RunSummary]:
    """Analyse runs with both readers, check that the results are equal, and return the summaries.

    Raises: AssertionError if a result differs. The message names the run, and the field or table.
    """
    written = {
        name: write_run(base / name, rows, clock_error_us=clock_error_us)
        for name, rows in traces.items()
    }
    summaries = []
    # `analyze` reads a run of at most `whole_run_rows` rows with plain Python. With the limit 0,
    # Spark reads every run.
    for by_spark in analyze(list(written.values()), spark=spark, whole_run_rows=0):
        by_python = summarize_rows(
            traces[by_spark.run],
            run=by_spark.run,
            directory=by_spark.directory,
            clock_error_us=clock_error_us,
        )
        for field in RunSummary.__slots__:
            assert getattr(by_python, field) == getattr(by_spark, field), f"{by_spark.run}: {field}"
        summaries.append(by_python)
        sparks_tables = _tables(by_spark.directory)
        # Now plain Python writes its tables into the same folder, and replaces Spark's tables.
        analyze_whole(*find_run_files([by_spark.directory]))
        for name, rows in _tables(by_spark.directory).items():
            assert rows == sparks_tables[name], f"{by_spark.run}: {name}"
    return summaries


def _tables(run: Path) -> dict[str, list[TableRow]]:
    """Return the rows of each table of a run, in an order that does not depend on the reader."""
    return {name: sorted(read_table(run, name), key=repr) for name in TABLE_NAMES}


def say_summaries(what: str, summaries: Sequence[RunSummary]) -> None:
    """Print how much was compared."""
    events = sum(summary.events for summary in summaries)
    faults = sum(len(summary.faults) for summary in summaries)
    rebalances = sum(fault.rebalance_count for run in summaries for fault in run.faults)
    say(
        f"**{len(summaries)} {what}**: both readers give the same summary and tables; "
        f"{events:,} rows, {faults} faults, {rebalances} rebalances"
    )
