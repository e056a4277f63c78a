"""What the acceptance tests share."""

from pathlib import Path

import pytest

from tests.support.harness.command_line import CommandLine


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """`python -m coordlab` in an empty folder."""
    return CommandLine(tmp_path)
