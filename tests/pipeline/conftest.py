"""One analysis for the whole session: Spark costs more than all tests."""

import pytest
from pyspark.sql import SparkSession

from tests.support.analysed_runs import AnalysedRuns, analyse_stories
from tests.support.random_runs import AnalysedRun, analyse_random_runs


@pytest.fixture(scope="session")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AnalysedRuns:
    """Analyse the hand-written runs once."""
    return analyse_stories(spark, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def random_runs(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[AnalysedRun, ...]:
    """Analyse random traces and small real runs once, for the oracles."""
    return analyse_random_runs(spark, tmp_path_factory.mktemp("random_runs"))
