"""One analysis for the whole session: Spark costs more than all tests."""

import pytest
from pyspark.sql import SparkSession

from tests.support.analysed_runs import AnalysedRuns, analyse_together
from tests.support.random_runs import AnalysedRun


@pytest.fixture(scope="session")
def _analysed_together(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[AnalysedRuns, tuple[AnalysedRun, ...]]:
    return analyse_together(spark, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def analysed(
    _analysed_together: tuple[AnalysedRuns, tuple[AnalysedRun, ...]],
) -> AnalysedRuns:
    """Return the hand-written runs, which are analysed once."""
    return _analysed_together[0]


@pytest.fixture(scope="session")
def random_runs(
    _analysed_together: tuple[AnalysedRuns, tuple[AnalysedRun, ...]],
) -> tuple[AnalysedRun, ...]:
    """Return random and small real runs, which are analysed once, for the oracles."""
    return _analysed_together[1]
