"""The tables of a run do not depend on where the analysis keeps them while it works.

The analysis keeps the tables of small runs in memory (MemoryStore), and the tables of large runs in
files (FileStore). All other tests have small runs. In this test, small runs count as large.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import run as analysis
from pipeline.all_tables import TABLE_NAMES
from pipeline.engine.session import LONG_WORK
from pipeline.run import analyze
from pipeline.summary.summary_file import is_current
from tests.support.builders.trace_builder import read_table
from tests.support.worlds.analysed_runs import AnalysedRuns

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
"""Number of parts into which Spark divides the rows of all runs. There are more runs than parts, so
a part has rows of several runs."""


def _copied(analysed: AnalysedRuns, names: Sequence[str], base: Path) -> dict[str, Path]:
    """Copy runs into `base`, each under its own name and without the results of its analysis."""
    copies = {}
    # A run that is named twice is copied once.
    for name in dict.fromkeys(names):
        original = analysed.directories[name]
        # The last two folders, the experiment and the run, are the run's name.
        copies[name] = base.joinpath(*original.parts[-2:])
        shutil.copytree(original, copies[name], ignore=shutil.ignore_patterns("tables"))
    return copies


def _assert_same(analysed: AnalysedRuns, copies: dict[str, Path]) -> None:
    """Assert that each copy of a run has the same rows in its tables as the original."""
    for run, copy in copies.items():
        assert is_current(copy)
        for name in TABLE_NAMES:
            rows, expected = read_table(copy, name), read_table(analysed.directories[run], name)
            # The order of rows has no meaning. Rows are dicts, which only their texts can order.
            assert sorted(rows, key=repr) == sorted(expected, key=repr), f"{name} of {run}"


@contextmanager
def _settings_of_long_work(spark: SparkSession) -> Iterator[None]:
    """Use Spark's settings for large runs; other tests have the settings for small runs."""
    wanted = {**LONG_WORK, "spark.sql.shuffle.partitions": str(PARTITIONS)}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_tables_of_large_runs_equal_those_of_small_ones(
    spark: SparkSession,
    analysed: AnalysedRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark divides the rows of large runs into several parts, which makes mistakes visible.

    - A step that relied on the order of rows would have another result.
    - Rows of several runs are in one part, so the computation must keep the runs apart.
    - The tables of all runs are first written into the folder of the first run, and then split.
      The first run here is `pause`. Its folder has a name that looks like a pattern of paths,
      because it contains `[x]`.
    """
    # With SHORT_WORK_ROWS 0, every run counts as large, so a FileStore keeps the tables. With
    # `whole_run_rows` 0, no run is left to a single task.
    monkeypatch.setattr(analysis, "SHORT_WORK_ROWS", 0)
    copies = _copied(analysed, ("pause", *analysed.directories), tmp_path)

    with _settings_of_long_work(spark):
        summaries = analyze(list(copies.values()), spark=spark, whole_run_rows=0)

    _assert_same(analysed, copies)
    for (run, copy), summary in zip(copies.items(), summaries, strict=True):
        assert summary == replace(analysed.summaries[run], directory=copy)
