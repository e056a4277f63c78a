"""Two ways of analysing a run with Spark must give the same tables and the same summary.

A large run is analysed by transforms of Spark's DataFrames: Spark splits the rows of the run over
many tasks in its worker processes. For a small run, the planning of these tasks would take longer
than their work. So a single task reads a small run whole, and computes all its tables in plain
Python.

The fixture `analysis` has runs that the transforms analysed: random runs (`random`), and runs
written by hand (`stories`). Each test copies such a run without its tables, analyses the copy in
the other way, and compares the two results.
"""

import errno
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from pipeline.all_tables import TABLE_NAMES
from pipeline.engine.run_files import find_run_files
from pipeline.run import AnalysisProgress, analyze
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import is_current, read_summary
from pipeline.table_columns import arrow_schema
from pipeline.whole_runs import tasks
from pipeline.whole_runs.tasks import workers_have_package
from pipeline.whole_runs.write import analyze_whole
from tests.support.builders.trace_builder import read_table, write_run
from tests.support.random_worlds.random_trace import random_run
from tests.support.worlds.analysed_runs import Analysis

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def _copied(run: Path, base: Path) -> Path:
    """Copy a run without the results of its analysis into `base`.

    The copy has the name of the run, which consists of two folders, such as `crash/1`.
    """
    ignored = shutil.ignore_patterns("tables", "*.html")
    return Path(shutil.copytree(run, base.joinpath(*run.parts[-2:]), ignore=ignored))


def _read_whole(run: Path, base: Path) -> tuple[Path, RunSummary | None]:
    """Copy a run, and read the copy whole; return the copy and its summary.

    The summary is None for a run with a broken file, because only the transforms can skip the
    broken parts of a file.
    """
    copy = _copied(run, base)
    (files,) = find_run_files([copy])
    return copy, analyze_whole(files)


def _check_tables(copy: Path, run: Path) -> None:
    """Compare each table of the copy, which was read whole, with the table of the transforms.

    The order of the rows does not matter. So both lists are sorted, by the text of each row.
    """
    assert is_current(copy)
    for name in TABLE_NAMES:
        assert pq.read_schema(copy / "tables" / name / "part-00000.parquet") == arrow_schema(name)
        rows, expected = read_table(copy, name), read_table(run, name)
        assert sorted(rows, key=repr) == sorted(expected, key=repr), f"{name} of {run}"


def test_random_runs_read_whole_have_the_tables_of_the_transforms(
    analysis: Analysis, tmp_path: Path
) -> None:
    """Both ways of reading must give each table and each figure the same meaning."""
    summaries = []
    for run in analysis.random:
        copy, summary = _read_whole(run.directory, tmp_path)
        assert summary is not None
        _check_tables(copy, run.directory)
        assert replace(summary, directory=run.directory) == read_summary(run.directory), run.run
        summaries.append(summary)
    # There are enough runs and faults for a comparison that means something.
    assert len(summaries) > 30
    assert sum(len(summary.faults) for summary in summaries) > 50
    assert any(fault.rebalances for summary in summaries for fault in summary.faults)
    for part in ("coordinators", "owners", "processing", "commit_errors"):
        assert any(getattr(summary, part) for summary in summaries), part


def test_written_runs_read_whole_have_the_tables_of_the_transforms(
    analysis: Analysis, tmp_path: Path
) -> None:
    """Some of the hand-written runs have torn files, bad rows, no events or differing clocks.

    `analyze_whole` returns None for a run with a file that it cannot read; `analyze` then gives the
    run to the transforms.
    """
    directories = list(analysis.stories.directories.values())
    summaries = []
    for run in directories:
        copy, summary = _read_whole(run, tmp_path)
        if summary is None:
            assert not (copy / "tables").exists()
            continue
        _check_tables(copy, run)
        assert replace(summary, directory=run) == read_summary(run), run
        summaries.append(summary)
    runs_that_were_not_read = len(directories) - len(summaries)
    assert 0 < runs_that_were_not_read < len(summaries)
    assert any(summary.bad_rows for summary in summaries)
    assert any(summary.unreadable for summary in summaries)
    assert any(summary.clock_error_us for summary in summaries)
    assert any(not summary.events for summary in summaries)


def test_each_run_of_one_call_is_read_whole_or_transformed_as_needed(
    spark: SparkSession, analysis: Analysis, tmp_path: Path
) -> None:
    """One call of `analyze` sends two of three runs to single tasks, and one to the transforms.

    The summaries are in the order of the runs, and the progress ends with its total.

    That the transforms get just one run is a special case: they then write the run's name into the
    column `run` as a constant, instead of taking the name from the path of each file.
    """
    directories = analysis.stories.directories
    # Take the first run that cannot be read whole, and so has no summary.
    spoiled = next(
        run for run in directories.values() if _read_whole(run, tmp_path / "tried")[1] is None
    )
    runs = [directories["pause"], spoiled, directories["empty"]]
    copies = [_copied(run, tmp_path / "analysed") for run in runs]
    reports: list[AnalysisProgress] = []

    summaries = analyze(copies, spark=spark, progress=reports.append)

    assert [summary.directory for summary in summaries] == copies
    for run, copy in zip(runs, copies, strict=True):
        assert is_current(copy)
        for name in TABLE_NAMES:
            rows, expected = read_table(copy, name), read_table(run, name)
            assert sorted(rows, key=repr) == sorted(expected, key=repr), f"{name} of {run}"
    # The steps are Spark's start, three runs, the tables of the spoiled run, and its summary.
    assert reports[-1].total == 1 + 3 + len(TABLE_NAMES) + 1
    assert reports[-1].done == reports[-1].total
    steps_done = [report.done for report in reports]
    assert steps_done == sorted(steps_done)


def test_unwritable_tables_are_an_error_of_the_system_with_its_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An exception of a task reaches the driver only as the text of a Java exception.

    The command line shows the error's number and path, so `analyze` has to raise a real OSError.
    """
    run = write_run(tmp_path / "talk" / "1", random_run(2))
    (run / "tables").write_text("in the way")
    with pytest.raises(NotADirectoryError) as raised:
        analyze([run], spark=spark)
    assert raised.value.errno == errno.ENOTDIR
    assert str(run) in str(raised.value.filename)


class _Cluster:
    """Spark on this machine. It looks like a cluster, because it names another machine."""

    master = "spark://elsewhere:7077"
    defaultParallelism = 2

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def parallelize(self, values: Iterable[int], slices: int) -> RDD[int]:
        return self._context.parallelize(values, slices)


def test_workers_of_a_cluster_must_have_the_version_of_coordlab_that_starts_the_analysis(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers read runs whole only if the same version of this project is installed there.

    Otherwise the transforms compute the tables, because they need no Python on the workers.
    """
    context = spark.sparkContext
    cluster: SparkContext = _Cluster(context)
    assert workers_have_package(cluster)
    with monkeypatch.context() as patch:
        # From here on the workers have another version than the driver.
        patch.setattr(tasks, "TABLES_VERSION", 0)
        assert not workers_have_package(cluster)
    # From here on the workers have no Python.
    monkeypatch.setattr(context, "pythonExec", str(Path(sys.executable).parent / "no-python"))
    assert not workers_have_package(cluster)
    # A local Spark is not asked: its workers run the Python of the driver.
    assert workers_have_package(context)
