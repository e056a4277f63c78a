"""One Spark for the whole session, and one analysis: their start costs more than all tests."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.java import JavaProblem, find_java
from pipeline.session import spark_session
from tests.support.analysed_runs import AnalysedRuns, analyse_stories
from tests.support.random_runs import AnalysedRun, analyse_random_runs


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start a local Spark; it ends with its JVM also after failures. CI must have a Java for it."""
    java = find_java()
    if isinstance(java, JavaProblem):
        reason = f"no suitable Java: {java.found}. {java.advice}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with spark_session(short_work=True, name="coordlab-tests") as session:
        yield session


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
