"""Fixtures for the tests of the tables."""

import pytest

from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.worlds.analysed_runs import AnalysedRuns, Analysis


@pytest.fixture(scope="session")
def analysed(analysis: Analysis) -> AnalysedRuns:
    """Return the hand-written runs; they are analysed once for all tests."""
    return analysis.stories


@pytest.fixture(scope="session")
def random_runs(analysis: Analysis) -> tuple[AnalysedRun, ...]:
    """Return random runs and small real runs, analysed once for all tests.

    Tests compare their tables with oracles: other computations of the same tables.
    """
    return analysis.random
