"""Kinds of trace rows that the analysis drops at once, because no table reads them.

These kinds are listed in NO_TABLES_KINDS. A table that reads a listed kind would be empty.
"""

from pathlib import Path

import pytest

import pipeline
from pipeline.intermediate import telling_rows
from pipeline.intermediate.telling_rows import NO_TABLES_KINDS
from protocol.trace import TraceKind

_TRANSFORMS = [
    path
    for folder in ("tables", "intermediate")
    for path in sorted((Path(pipeline.__file__).parent / folder).glob("*.py"))
    if path != Path(telling_rows.__file__)
]
"""Modules of transforms, except the one that selects the rows."""


@pytest.mark.parametrize("kind", NO_TABLES_KINDS, ids=str)
def test_no_transform_reads_a_kind_that_is_left_out(kind: TraceKind) -> None:
    """No module that computes a table mentions a listed kind."""
    assert _TRANSFORMS  # otherwise the test would read no file and pass
    readers = [path.name for path in _TRANSFORMS if f"TraceKind.{kind.name}" in path.read_text()]
    assert readers == []
