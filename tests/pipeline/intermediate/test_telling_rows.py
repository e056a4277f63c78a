"""Kinds of trace rows (NO_TABLES_KINDS) that are skipped, because no table reads them."""

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
def test_no_transform_reads_a_skipped_kind(kind: TraceKind) -> None:
    """A transform that reads a skipped kind would find no rows, and give an empty table."""
    assert _TRANSFORMS
    readers = [path.name for path in _TRANSFORMS if f"TraceKind.{kind.name}" in path.read_text()]
    assert readers == []
