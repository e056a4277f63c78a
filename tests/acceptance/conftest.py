"""What the acceptance tests share."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import CommandLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.reports import Reports


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """`python -m coordlab` in an empty folder."""
    return CommandLine(tmp_path)


@pytest.fixture(scope="session")
def reports(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Reports":
    """Make the runs whose reports are tested, and their reports, once."""
    from tests.support.reports import make_reports

    return make_reports(spark, tmp_path_factory.mktemp("reports"))
