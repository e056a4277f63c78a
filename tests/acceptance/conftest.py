"""What the acceptance tests share."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.harness.command_line import CommandLine

if TYPE_CHECKING:
    from tests.support.worlds.analysed_runs import Analysis
    from tests.support.worlds.reports import Reports


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """`python -m coordlab` in an empty folder."""
    return CommandLine(tmp_path)


@pytest.fixture(scope="session")
def reports(analysis: "Analysis") -> "Reports":
    """Make the reports that are tested, once."""
    from tests.support.worlds.reports import make_reports

    return make_reports(analysis.played)
