"""Fixtures of the tests of the tables."""

import pytest

from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.worlds.analysed_runs import AnalysedRuns, Analysis


@pytest.fixture(scope="session")
def analysed(analysis: Analysis) -> AnalysedRuns:
    """Return the hand-written runs, which are analysed once."""
    return analysis.told


@pytest.fixture(scope="session")
def random_runs(analysis: Analysis) -> tuple[AnalysedRun, ...]:
    """Return random and small real runs, analysed once, to compare tables with their oracles."""
    return analysis.random
