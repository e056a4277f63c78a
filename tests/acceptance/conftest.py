"""Fixtures that all acceptance tests share."""

from pathlib import Path

import pytest

from tests.support.harness.command_line import CommandLine


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """Return a runner of `python -m coordlab` whose working folder is empty."""
    return CommandLine(tmp_path)
