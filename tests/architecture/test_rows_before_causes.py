"""Traces are those of before the folders, but for causes and rows of restarted sessions.

Digests change once, with the columns of causes. Every fourth run of the record is
played here; `python -m tests.support.reference.rows_before_causes` prints all of them.
"""

import json
from pathlib import Path

import pytest

from tests.support.reference.rows_before_causes import drawn_digest, experiment_digest

RECORD: dict[str, str] = json.loads(
    Path(__file__).with_name("rows_before_causes.json").read_text(encoding="utf-8")
)
"""Written at 46c26c9 by `tests.support.reference.rows_before_causes`."""
EVERY = 4


@pytest.mark.slow
@pytest.mark.parametrize("run", list(RECORD)[::EVERY])
def test_rows_are_those_of_before_but_for_causes_and_restarted_sessions(run: str) -> None:
    """Columns, order, times and details are equal, run by run."""
    name, _, seed = run.partition("/")
    digest = drawn_digest(int(seed)) if seed else experiment_digest(name)
    assert digest == RECORD[run]
