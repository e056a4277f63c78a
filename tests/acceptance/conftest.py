"""Shared fixtures of the acceptance tests."""

from pathlib import Path

import pytest

from tests.support.harness.command_line import CommandLine


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """Return `python -m coordlab` in an empty folder."""
    return CommandLine(tmp_path)
