"""Fixtures of all tests of the report."""

import pytest

from pipeline.report.charts import chart_specs


@pytest.fixture(autouse=True, scope="session")
def _every_chart_is_valid() -> None:
    """Check each chart against Vega-Lite's schema. For a user's report this would take too long."""
    chart_specs._VALIDATE = True
