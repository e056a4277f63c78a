"""The traces of before, but for what was meant to change: causes, and rows of restarted sessions."""

import json
from pathlib import Path

import pytest

from tests.support.reference.rows_before_causes import drawn_digest, experiment_digest

RECORD: dict[str, str] = json.loads(
    Path(__file__).with_name("rows_before_causes.json").read_text(encoding="utf-8")
)
"""Written at 46c26c9 by `tests.support.reference.rows_before_causes`."""


@pytest.mark.slow
@pytest.mark.parametrize("run", RECORD)
def test_rows_are_those_of_before_but_for_causes_and_restarted_sessions(run: str) -> None:
    """Digests change once with the columns of causes (DESIGN 11.8); nothing else in a row does."""
    name, _, seed = run.partition("/")
    digest = drawn_digest(int(seed)) if seed else experiment_digest(name)
    assert digest == RECORD[run]
