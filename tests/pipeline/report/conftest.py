"""What all tests of the report share."""

import pytest

from pipeline.report.charts import chart_specs


@pytest.fixture(autouse=True, scope="session")
def _every_chart_is_valid() -> None:
    """Hold each chart against Vega-Lite's schema, which a report of a user's has no time for."""
    chart_specs._VALIDATE = True
